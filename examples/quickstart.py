"""Fill a blank, get several answers, best first."""

import ddot

model = ddot.load()
for answer in model.infill("We were so ___ wedding.", n=3, seed=0):
    print(f"{answer.score:6.2f}  {answer.text}")
