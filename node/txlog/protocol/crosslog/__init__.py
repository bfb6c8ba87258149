"""Transactions over several logs: what each log says of them, and what a master may say next. All is pure."""
