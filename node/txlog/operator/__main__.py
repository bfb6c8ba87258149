"""``python -m txlog.operator``."""

from txlog.operator.main import main

if __name__ == "__main__":
    main()
