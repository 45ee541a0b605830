"""Every step of the reverse process: masked slots (░) become words while all of them find their places."""

import ddot

model = ddot.load()
for frame in model.stream("We were so ___ wedding.", steps=8):
    print(f"t = {frame.t:.2f}  {frame.text}")
