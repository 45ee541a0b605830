"""Keep a fill you like and fill the rest again."""

import ddot

model = ddot.load()
text = "The hotel was ___{1,3}, and the staff ___."
first = model.infill(text)[0]
print("first:", first.text)
again = model.infill(text, fills=[first.fills[0], None], seed=1, temperature=0.8)[0]
print("again:", again.text)
assert again.fills[0] == first.fills[0]
