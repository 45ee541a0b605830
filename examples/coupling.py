"""The coupling on its own: an exact optimal matching in linear time, and the paper's coupling of a whole batch."""

import numpy as np

from ddot.coupling import couple, match

rng = np.random.default_rng(0)
targets, pool = np.sort(rng.uniform(-1, 1, 5)), np.sort(rng.uniform(-1, 1, 12))
chosen = match(targets, pool)
print("matched pool positions:", chosen, "total distance:", round(float(np.abs(targets - pool[chosen]).sum()), 4))

is_prompt = np.zeros((2, 16), bool)
is_prompt[:, [0, 3, 4, 9]] = True
z_0, z_T = couple(is_prompt, np.array([10, 12]), seed=0)
print("prompt order kept:", bool((np.diff(z_T[0][is_prompt[0]]) > 0).all()))
