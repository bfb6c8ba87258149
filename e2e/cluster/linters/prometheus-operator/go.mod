module txlog/linters/prometheus-operator

go 1.25.0

// Never built: its definitions are schemas.
require github.com/prometheus-operator/prometheus-operator v0.85.0
