"""`python -m mhpatchcore`"""

from mhpatchcore.cli import main

if __name__ == "__main__":
    main()
