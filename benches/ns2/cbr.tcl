# CBR over three links: 500 s of 1000-byte packets at 40 Mbit/s.
set ns [new Simulator]
foreach i {0 1 2 3} { set n($i) [$ns node] }
foreach i {0 1 2} { $ns simplex-link $n($i) $n([expr $i + 1]) 100Mb 10ms DropTail }
set udp [new Agent/UDP]
$udp set packetSize_ 1000
$ns attach-agent $n(0) $udp
set sink [new Agent/Null]
$ns attach-agent $n(3) $sink
$ns connect $udp $sink
set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ 1000
$cbr set rate_ 40Mb
$cbr attach-agent $udp
$ns at 0.0 "$cbr start"
$ns at 500.0 "exit 0"
$ns run
