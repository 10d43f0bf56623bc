# Dumbbell: 20 SACK flows over 100 Mbit/s, 20 ms round trip, 1000-byte packets, a DropTail queue of 200, 100 s.
# The last line is the number of packets that all links have carried.
set ns [new Simulator]
set left [$ns node]
set right [$ns node]
$ns duplex-link $left $right 100Mb 8ms DropTail
$ns queue-limit $left $right 200
$ns queue-limit $right $left 200
set monitors {}
proc watch {a b} { global ns monitors; lappend monitors [$ns monitor-queue $a $b ""] }
watch $left $right
watch $right $left
for {set i 0} {$i < 20} {incr i} {
    set s($i) [$ns node]
    set d($i) [$ns node]
    $ns duplex-link $s($i) $left 1Gb 1ms DropTail
    $ns duplex-link $right $d($i) 1Gb 1ms DropTail
    $ns queue-limit $s($i) $left 10000
    $ns queue-limit $right $d($i) 10000
    set tcp [new Agent/TCP/Sack1]
    $tcp set packetSize_ 960
    $tcp set window_ 1000
    $tcp set overhead_ 0.00008
    set sink [new Agent/TCPSink/Sack1]
    $ns attach-agent $s($i) $tcp
    $ns attach-agent $d($i) $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at [expr 0.05 * $i] "$ftp start"
}
proc finish {} {
    global monitors
    # Each packet of the bottleneck crosses three links, and so does each acknowledgement.
    set sum 0
    foreach m $monitors { set sum [expr $sum + 3 * [$m set pdepartures_]] }
    puts $sum
    exit 0
}
$ns at 100.0 finish
$ns run
