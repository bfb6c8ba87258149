"""The words of TxLog: values only, no behaviour that needs a clock, chance, or the outside."""
