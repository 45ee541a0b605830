"""`python -m ddot` and the `ddot` command."""

import os

# Idle OpenMP threads that spin steal the cores from everybody else: 3x slower on a busy machine.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> None:
    from ddot.cli import run

    run()


if __name__ == "__main__":
    main()
