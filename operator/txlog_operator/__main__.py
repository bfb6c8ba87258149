"""``python -m txlog_operator``."""

from txlog_operator.main import main

if __name__ == "__main__":
    main()
