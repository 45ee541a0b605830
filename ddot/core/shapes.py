"""Recurring array types with their shapes: B rows of L slots, M selected slots, V tokens. Tests check the shapes."""

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt64
from torch import Tensor

Keys = UInt64[np.ndarray, "B"]  # the random key of each row (see `rng`)
Times = Float32[np.ndarray, "B"]
Flags = Bool[np.ndarray, "B L"]
Positions = Float32[np.ndarray, "B L"]
Scores = Float[Tensor, "M V"]  # logits, log scores or probabilities of every token
PerSlot = Float[Tensor, "M"]
