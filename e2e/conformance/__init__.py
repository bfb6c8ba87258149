"""TxLog beside standards, other servers and unchanged clients."""
