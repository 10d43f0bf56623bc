-- TFMCC (RFC 4654) in the format of manyflow-tfmcc/src/wire.rs.

local common = require("manyflow_common")

local proto = Proto("manyflow_tfmcc", "TFMCC of manyflow")
local malformed = common.malformed("manyflow_tfmcc")
local KINDS = { [1] = "data", [2] = "feedback" }
local DATA, FEEDBACK = 1, 2

local f = {
    kind = ProtoField.uint8("manyflow_tfmcc.kind", "Kind", base.DEC, KINDS),
    round = ProtoField.uint8("manyflow_tfmcc.round", "Feedback round (fb_nr)"),
    has_echo = ProtoField.bool("manyflow_tfmcc.has_echo", "Has an echo", 16, nil, 0x8000),
    is_clr = ProtoField.bool("manyflow_tfmcc.is_clr", "Limiting receiver (is_CLR)", 16, nil, 0x4000),
    have_rtt = ProtoField.bool("manyflow_tfmcc.have_rtt", "Has measured its round-trip time (have_RTT)", 16, nil, 0x8000),
    have_loss = ProtoField.bool("manyflow_tfmcc.have_loss", "Has seen a loss event (have_loss)", 16, nil, 0x4000),
    leaving = ProtoField.bool("manyflow_tfmcc.leaving", "Leaves (receiver_leave)", 16, nil, 0x2000),
    suppression = ProtoField.uint16("manyflow_tfmcc.suppression", "Suppression rate (X_supp)", base.HEX, nil, 0x0fff),
    rate = ProtoField.uint16("manyflow_tfmcc.rate", "Calculated rate (X_r)", base.HEX, nil, 0x0fff),
    bits_per_s = ProtoField.double("manyflow_tfmcc.bits_per_s", "Rate in bit/s"),
    sequence = ProtoField.uint32("manyflow_tfmcc.sequence", "Sequence number (i)"),
    sent = ProtoField.uint32("manyflow_tfmcc.sent", "Sent at (ts_i)"),
    rtt_max = ProtoField.uint8("manyflow_tfmcc.rtt_max", "Maximum round-trip time (R_max)", base.HEX),
    rtt_max_ms = ProtoField.double("manyflow_tfmcc.rtt_max_ms", "Maximum round-trip time in ms"),
    reserved = ProtoField.uint24("manyflow_tfmcc.reserved", "Reserved", base.HEX),
    receiver = ProtoField.uint32("manyflow_tfmcc.receiver", "Receiver (r)"),
    echo = ProtoField.uint32("manyflow_tfmcc.echo", "Echo of the report's time (tr_r')"),
    report_sent = ProtoField.uint32("manyflow_tfmcc.report_sent", "Report sent at (tr_r)"),
    report_echo = ProtoField.uint32("manyflow_tfmcc.report_echo", "Echo of the data's time (ts_i')"),
    payload = ProtoField.bytes("manyflow_tfmcc.payload", "Payload"),
}
proto.fields = f
proto.experts = { malformed }

-- The rate of a code of 12 bits (section 2.2.1): 5 bits of exponent, 7 of mantissa.
local function bits_per_s(code)
    return 100 * (1 + code % 128 / 128) * 2 ^ math.floor(code / 128)
end

-- The round-trip time of a code of 8 bits: 4 bits of exponent, 4 of mantissa.
local function milliseconds(code)
    return (1 + code % 16 / 16) * 2 ^ math.floor(code / 16)
end

local function data(reader)
    local echoes = (reader:peek(2) or 0) >= 0x8000
    reader:show(f.has_echo, 2)
    if echoes then
        reader:show(f.is_clr, 2)
    end
    local word = reader:take(f.suppression, 2)
    if word then
        reader:computed(f.bits_per_s, 2, bits_per_s(word % 0x1000))
    end
    reader:take_all({ { f.sequence, 4 }, { f.sent, 4 } })
    local rtt = reader:take(f.rtt_max, 1)
    if rtt then
        reader:computed(f.rtt_max_ms, 1, milliseconds(rtt))
    end
    reader:take(f.reserved, 3)
    reader:take_all({ { echoes and f.receiver, 4 }, { echoes and f.echo, 4 } })
    reader:rest(f.payload)
end

local function feedback(reader)
    reader:show(f.have_rtt, 2)
    reader:show(f.have_loss, 2)
    reader:show(f.leaving, 2)
    local word = reader:take(f.rate, 2)
    if word then
        reader:computed(f.bits_per_s, 2, bits_per_s(word % 0x1000))
    end
    reader:take_all({ { f.receiver, 4 }, { f.report_sent, 4 }, { f.report_echo, 4 } })
    reader:rest(f.payload)
end

local function decode(tvb, tree)
    local reader = common.reader(tvb, tree, malformed)
    local kind = reader:take(f.kind, 1)
    if kind and not KINDS[kind] then
        reader:refuse("kind %d is unknown: 1 is data, 2 is feedback", kind)
    end
    reader:take(f.round, 1)
    if kind == DATA then
        data(reader)
    elseif kind == FEEDBACK then
        feedback(reader)
    end
    return reader, kind
end

function proto.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "TFMCC"
    local reader, kind = decode(tvb, common.subtree(tree, proto, tvb))
    pinfo.cols.info = common.info(reader, KINDS[kind])
    return tvb:len()
end

-- Data goes to a group, and R_max is followed by zeros. Feedback has exactly 16 bytes, and its
-- unused bit is zero.
common.register_udp_heuristic(proto, function(tvb, pinfo)
    local reader, kind = decode(tvb)
    if reader.refused then
        return false
    elseif kind == DATA then
        local word, rtt = tvb:range(2, 2):uint(), tvb:range(12, 4):uint()
        return common.is_multicast(pinfo) and word % 0x4000 < 0x1000 and rtt > 0 and rtt % 0x1000000 == 0
    end
    return tvb:len() == 16 and not common.is_multicast(pinfo) and tvb:range(2, 2):uint() % 0x2000 < 0x1000
end)

common.register_ports(proto, {
    { table = "udp.port", preference = "udp_ports", label = "UDP ports", default = "47445" },
})
