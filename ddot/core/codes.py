"""The codes in records: what a slot is, and what is known about the gaps next to a prompt token."""

# What a slot is (Slots.kind). The network never sees which slots are RESPONSE and which PAD.
PROMPT, RESPONSE, PAD = 0, 1, 2

# Hints about the gaps next to a prompt token: nothing is known (UNKNOWN), both are closed (GLUED), or text is missing
# before it, after it, or on both sides. Other tokens have NOT_PROMPT.
NOT_PROMPT, UNKNOWN, GLUED, BEFORE, AFTER, BOTH = 0, 1, 2, 3, 4, 5
HINTS = 6

# The gap_length of a slot without a given length.
UNKNOWN_LENGTH = -1
