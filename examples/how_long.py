"""How long would the model make each blank? Shares of lengths in words, from a few quick fillings."""

import ddot

model = ddot.load()
for share in model.lengths("He was born in ___ and moved to the city because ___.", rollouts=4, steps=2):
    print({words: round(chance, 2) for words, chance in share.items()})
