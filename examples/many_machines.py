"""A table of texts on a Ray cluster (extra `ray`): actors load the model once, columns are carried, bad rows told."""

import ray

import ddot

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
rows = [
    {"id": 1, "text": "The soup was ___.", "source": "menu"},
    {"id": 2, "text": "She ___{1,3} the letter.", "source": "novel"},
    {"id": 3, "text": "a row without a blank", "source": "mistake"},
]
filled = ddot.on_ray(ray.data.from_items(rows), batch_size=2, concurrency=2, steps=8)
for row in sorted(filled.take_all(), key=lambda row: row["id"]):
    print(row["id"], row["source"], row["text"], row["error"] or round(row["score"], 2))
ray.shutdown()
