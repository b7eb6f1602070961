"""Speed and memory as ratios within one run: `make bench DATA=/path/to/normal/images` (a folder of images)

scoring   a score, with and without its map, against the bare network
fitting   a fit against decoding everything and running the bare network once, phase by phase; --memory: its peak
storing   a second fit from the store of the first
starting  a new process up to its first score

Each is a command of its own as well: `python -m benchmarks.fitting DATA`. Measured are the embedded network with the
default settings and WideResNet-50-2 with the paper's, K = 5,000 (random weights unless --weights names a file).
"""

from __future__ import annotations

from benchmarks import fitting, scoring, starting, storing
from benchmarks.commands import listed, parser_of, write_json
from benchmarks.networks import DEFAULT, add_subjects

PARTS = {"scoring": scoring.run, "fitting": fitting.run, "storing": storing.run, "starting": starting.run}


def main() -> None:
    parser = parser_of(__doc__)
    add_subjects(parser)
    scoring.add_options(parser)
    fitting.add_options(parser)
    parser.add_argument("--parts", type=listed, default=list(PARTS), help="what to measure, by commas")
    parser.set_defaults(networks=[DEFAULT, "wide_resnet50_2"])
    options = parser.parse_args()
    found = {}
    for name in options.parts:
        print(f"\n{name}\n")
        found[name] = PARTS[name](options)
    write_json(options.json, found)


if __name__ == "__main__":
    main()
