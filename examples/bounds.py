"""Bounds in words hold for every blank, whatever the model would like to say."""

import ddot

model = ddot.load()
for text in ("The dog barked at ___{3,6} and ran.", "My favourite colour is ___{1}.", "I bought ___{2} and ___{4}."):
    answer = model.infill(text)[0]
    print(answer.text, [len(fill.split()) for fill in answer.fills])
