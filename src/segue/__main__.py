"""`python -m segue` is the same as the `segue` command."""

from segue.cli import main

if __name__ == "__main__":
    main()
