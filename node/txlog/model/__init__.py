"""The value types of TxLog: no behaviour that needs a clock, a random source, or I/O."""
