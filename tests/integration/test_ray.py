"""`ddot.on_ray` on a real local cluster: two actors, rows in any order, one actor killed in the middle."""

import os
import signal
from pathlib import Path

import pytest

import ddot

ray = pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
pytest.importorskip("pyarrow", reason="Ray Data needs pyarrow")
ROWS = 96


@pytest.fixture(scope="module")
def cluster():
    # Actors import this copy of the package, and one thread each is enough.
    path = os.pathsep.join(filter(None, [str(Path(ddot.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": environment},
    )
    yield ray
    ray.shutdown()


def actors() -> list[int]:
    """The processes of the actors that are filling."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = place.read_bytes()
        except OSError:  # it has just ended
            continue
        if said.startswith(b"ray::") and b"MapWorker" in said:
            found.append(int(place.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_row_is_lost_when_an_actor_is_killed(cluster, folder):
    rows = [{"id": i, "text": f"Number {i} ___{{1,3}} here.", "label": [f"l{i}", None]} for i in range(ROWS)]
    rows[5]["text"] = "no blank"
    data = cluster.data.from_items(rows, override_num_blocks=32)
    filled = ddot.on_ray(data, batch_size=4, concurrency=2, model=folder, steps=2, n=2)
    found = []
    for row in filled.iter_rows():
        if not found:
            os.kill(actors()[0], signal.SIGKILL)  # while the others are being filled
        found.append(row)
    found.sort(key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(ROWS))
    assert [list(row["label"]) for row in found] == [row["label"] for row in rows]
    assert [row["id"] for row in found if row["error"]] == [5]
    assert found[5]["text"] == "no blank"
    alone = ddot.load(folder).infill([row["text"] for row in rows if row["id"] != 5], steps=2, n=2)
    good = [row for row in found if row["id"] != 5]
    assert [row["text"] for row in good] == [best[0].text for best in alone]
    assert [list(row["fills"]) for row in good] == [best[0].fills for best in alone]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mistakes_are_sentences(cluster, folder):
    data = cluster.data.from_items([{"id": 1, "words": "a ___"}])
    with pytest.raises(ValueError, match="id, words; wanted text"):
        ddot.on_ray(data)
    with pytest.raises(ValueError, match="concurrency is 0"):
        ddot.on_ray(data, concurrency=0)
    with pytest.raises(ValueError, match="steps is 0"):
        ddot.on_ray(cluster.data.from_items([{"text": "a ___"}]), steps=0)
