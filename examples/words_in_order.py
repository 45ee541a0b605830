"""The paper's task: words that must appear in order; the model decides where text goes."""

import ddot

model = ddot.load()
answer = model.infill("dog park sunny", free=True, steps=8)[0]
print(answer.text)
