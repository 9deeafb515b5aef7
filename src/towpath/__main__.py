"""python -m towpath: the command line."""

from towpath.cli.main import main

main()
