module bench/limit

go 1.26.0
