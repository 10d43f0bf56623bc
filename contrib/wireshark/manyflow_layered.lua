-- Layered sessions (SIM and RLM): packets in the format of manyflow-layered/src/wire.rs, pieces of
-- units behind data (unit/wire.rs), and messages between hops (hop/wire.rs).

local common = require("manyflow_common")

local proto = Proto("manyflow_layered", "Layered session of manyflow")
local malformed = common.malformed("manyflow_layered")
local piece_proto = Proto("manyflow_piece", "Piece of a unit of manyflow")
local piece_malformed = common.malformed("manyflow_piece")
local hop_proto = Proto("manyflow_hop", "Message between hops of manyflow")
local hop_malformed = common.malformed("manyflow_hop")

local KINDS = { [1] = "data", [2] = "feedback", [3] = "experiment" }
local DATA, FEEDBACK, EXPERIMENT = 1, 2, 3
local GROUPS_MAX = 32

local f = {
    kind = ProtoField.uint8("manyflow_layered.kind", "Kind", base.DEC, KINDS),
    more = ProtoField.bool("manyflow_layered.more", "More feedback of this source follows", 8, nil, 0x80),
    pair = ProtoField.bool("manyflow_layered.pair", "Sent directly after the packet before it", 8, nil, 0x80),
    group = ProtoField.uint8("manyflow_layered.group", "Group", base.DEC, nil, 0x7f),
    for_group = ProtoField.bool("manyflow_layered.for_group", "The request is for receivers with this top group", 8, nil, 0x40),
    data_group = ProtoField.uint8("manyflow_layered.group", "Group", base.DEC, nil, 0x3f),
    whole_group = ProtoField.uint8("manyflow_layered.group", "Group"),
    request = ProtoField.uint16("manyflow_layered.request", "Request"),
    sequence = ProtoField.uint32("manyflow_layered.sequence", "Sequence number"),
    rate = ProtoField.uint32("manyflow_layered.rate", "Rate in bytes/s"),
    rtt_us = ProtoField.uint32("manyflow_layered.rtt_us", "Round-trip time in us"),
    next_rate = ProtoField.uint32("manyflow_layered.next_rate", "Cumulative rate of the next group in bytes/s"),
    reserved_half = ProtoField.uint16("manyflow_layered.reserved", "Reserved", base.HEX),
    source = ProtoField.uint32("manyflow_layered.source", "Source", base.HEX),
    session = ProtoField.uint32("manyflow_layered.session", "Session"),
    reports = ProtoField.uint32("manyflow_layered.reports", "Reports"),
    congested = ProtoField.uint32("manyflow_layered.congested", "Congested reports"),
    minimum = ProtoField.uint32("manyflow_layered.minimum", "Lowest rate in bytes/s"),
    maximum = ProtoField.uint32("manyflow_layered.maximum", "Highest rate in bytes/s"),
    population = ProtoField.uint32("manyflow_layered.population", "Population"),
    hold_us = ProtoField.uint32("manyflow_layered.hold_us", "Held for us"),
    payload = ProtoField.bytes("manyflow_layered.payload", "Payload"),
}
proto.fields = f
proto.experts = { malformed }
proto.prefs.pieces = Pref.bool("Payloads are pieces of units", true, "A payload that begins with zeros is shown as bytes")

local p = {
    unit = ProtoField.uint32("manyflow_piece.unit", "Unit"),
    time_us = ProtoField.uint32("manyflow_piece.time_us", "Time of the unit in us"),
    offset = ProtoField.uint32("manyflow_piece.offset", "Place in the unit"),
    length = ProtoField.uint32("manyflow_piece.length", "Length of the unit"),
    bytes = ProtoField.bytes("manyflow_piece.bytes", "Bytes of the piece"),
}
piece_proto.fields = p
piece_proto.experts = { piece_malformed }

local PIECE_BYTES = 16

-- The headers of pieces and their bytes: another piece follows one that ends with its unit. A
-- simulated payload is zeros, which no piece begins with: its unit would have no bytes.
local function pieces(outer, reader)
    while reader:left() > 0 and not reader.refused do
        local header = reader.tree and reader.tree:add(piece_proto, reader.tvb:range(reader.at))
        local inner = common.reader(reader.tvb, header, piece_malformed, reader.at, reader.to)
        local have = inner:left()
        if have < PIECE_BYTES then
            inner:rest(p.bytes)
            return inner:refuse("%d bytes are too few: the header of a piece takes %d", have, PIECE_BYTES)
        end
        inner:take_all({ { p.unit, 4 }, { p.time_us, 4 } })
        local offset, length = inner:take(p.offset, 4), inner:take(p.length, 4)
        if inner:left() == 0 then
            return inner:refuse("the piece has no bytes behind its header")
        elseif offset >= length then
            return inner:refuse("the piece begins at byte %.0f of a unit of %.0f", offset, length)
        end
        inner:take(p.bytes, math.min(inner:left(), length - offset))
        reader.at = inner.at
    end
end

local function payload(reader)
    if reader.refused or reader:left() == 0 then
        return
    end
    if not proto.prefs.pieces or reader:is_zero(PIECE_BYTES) then
        return reader:rest(f.payload)
    end
    return pieces(reader.tree, reader)
end

local function data(reader)
    reader:take_all({
        { f.request, 2 }, { f.sequence, 4 }, { f.rate, 4 }, { f.rtt_us, 4 }, { f.next_rate, 4 },
    })
    payload(reader)
end

local function feedback(reader)
    reader:take_all({ { f.request, 2 }, { f.source, 4 }, { f.session, 4 } })
    local reports, congested = reader:take(f.reports, 4), reader:take(f.congested, 4)
    local minimum, maximum = reader:take(f.minimum, 4), reader:take(f.maximum, 4)
    reader:take_all({ { f.population, 4 }, { f.hold_us, 4 }, { f.rtt_us, 4 } })
    if not reader.refused and congested > reports then
        reader:refuse("more reports are congested than there are")
    elseif not reader.refused and minimum > maximum then
        reader:refuse("the lowest rate is above the highest")
    end
    reader:rest(f.payload)
end

local function experiment(reader)
    reader:take_all({ { f.reserved_half, 2 }, { f.session, 4 } })
    reader:rest(f.payload)
end

-- Decodes the packet of a reader. Returns its kind and group.
local function packet(reader)
    local kind = reader:take(f.kind, 1)
    local byte = reader:peek(1)
    local is_flagged = kind ~= EXPERIMENT and byte and byte >= 0x80
    if is_flagged then
        reader:show(kind == FEEDBACK and f.more or f.pair, 1)
    end
    local is_for_group = kind == DATA and byte and byte % 0x80 >= 0x40
    if is_for_group then
        reader:show(f.for_group, 1)
    end
    local masked = is_for_group and f.data_group or is_flagged and f.group or f.whole_group
    byte = reader:take(masked, 1)
    local group = is_flagged and byte and byte - 0x80 or byte
    group = is_for_group and group and group - 0x40 or group
    if group and group >= GROUPS_MAX then
        reader:refuse("group %d is above the last, %d", group, GROUPS_MAX - 1)
    elseif kind and not KINDS[kind] then
        reader:refuse("kind %d is not known: 1 is data, 2 feedback, 3 an experiment", kind)
    elseif kind == DATA then
        data(reader)
    elseif kind == FEEDBACK then
        feedback(reader)
    else
        experiment(reader)
    end
    return kind, group
end

function proto.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "LAYERED"
    local reader = common.reader(tvb, common.subtree(tree, proto, tvb), malformed)
    local kind, group = packet(reader)
    pinfo.cols.info = common.info(reader, group and string.format("%s of group %d", KINDS[kind] or "?", group))
    return tvb:len()
end

-- Data goes to a group, within 16 s of round-trip time, and the next group has a higher rate or none;
-- a TFMCC packet has there the code of a round-trip time and zeros. Feedback and experiments have one length.
common.register_udp_heuristic(proto, function(tvb, pinfo)
    local reader = common.reader(tvb)
    local kind = packet(reader)
    if reader.refused then
        return false
    elseif kind == DATA then
        local rate, next_rate = tvb:range(8, 4):uint(), tvb:range(16, 4):uint()
        return common.is_multicast(pinfo) and tvb:range(12, 1):uint() == 0 and (next_rate == 0 or next_rate > rate)
    elseif kind == FEEDBACK then
        return tvb:len() == 40
    end
    return tvb:len() == 8 and tvb:range(2, 2):uint() == 0
end)

common.register_ports(proto, {
    { table = "udp.port", preference = "udp_ports", label = "UDP ports", default = "5446,48445" },
})

-- Messages between hops.

local HOP_KINDS = { [0x41] = "sounding", [0x42] = "echo", [0x43] = "report", [0x44] = "experiment",
    [0x45] = "request for repairs" }
local SOUNDING, ECHO, REPORT, REPAIR = 0x41, 0x42, 0x43, 0x45
local MAC_BYTES, FEEDBACK_BYTES, EXPERIMENT_BYTES, FEEDBACKS_MAX = 16, 40, 8, 32
local GAPS_BYTES, GAP_GROUPS_MAX, RESERVED_BYTES, GROUP_MAX = 28, 32, 3, 31

local h = {
    kind = ProtoField.uint8("manyflow_hop.kind", "Kind", base.HEX, HOP_KINDS),
    sealed = ProtoField.bool("manyflow_hop.sealed", "Sealed with a MAC", 8, nil, 0x01),
    flags = ProtoField.uint8("manyflow_hop.flags", "Flags", base.HEX),
    count = ProtoField.uint16("manyflow_hop.count", "Number of feedbacks or groups"),
    nonce = ProtoField.uint64("manyflow_hop.nonce", "Nonce", base.HEX),
    number = ProtoField.uint32("manyflow_hop.number", "Number of the sounding"),
    counter = ProtoField.uint32("manyflow_hop.counter", "Counter"),
    child = ProtoField.uint32("manyflow_hop.child", "Number of the child's counts", base.HEX),
    packets = ProtoField.uint64("manyflow_hop.packets", "Packets"),
    bytes = ProtoField.uint64("manyflow_hop.bytes", "Bytes"),
    wait = ProtoField.uint32("manyflow_hop.wait", "Age up to which packets are useful (ms)"),
    session = ProtoField.uint32("manyflow_hop.session", "Session"),
    group = ProtoField.uint8("manyflow_hop.group", "Group"),
    next = ProtoField.uint32("manyflow_hop.next", "Number of the next packet"),
    missing = ProtoField.bytes("manyflow_hop.missing", "Missing packets before the next"),
    mac = ProtoField.bytes("manyflow_hop.mac", "MAC (not verified)"),
}
hop_proto.fields = h
hop_proto.experts = { hop_malformed }

-- Decodes one packet of the session in `bytes` of the message.
local function body(reader, bytes, kind)
    if reader.refused then
        return
    end
    local outer = reader.tree
    local tree = outer and outer:add(proto, reader.tvb:range(reader.at, bytes))
    local inner = common.reader(reader.tvb, tree, hop_malformed, reader.at, reader.at + bytes)
    local found = packet(inner)
    reader.at = reader.at + bytes
    if inner.refused then
        reader.refused = inner.refused
    elseif found ~= kind then
        reader:refuse("the body is of another kind")
    end
end

local function report(reader, count)
    reader:take(h.counter, 4)
    if reader.refused then
        return
    end
    if count > FEEDBACKS_MAX or reader:left() ~= count * FEEDBACK_BYTES then
        return reader:refuse("%d bytes are not the length of %d feedbacks", reader:left(), count)
    end
    for _ = 1, count do
        body(reader, FEEDBACK_BYTES, FEEDBACK)
    end
end

local function repair(reader, count)
    reader:take_all({ { h.counter, 4 }, { h.wait, 4 } })
    if reader.refused then
        return
    end
    if count > GAP_GROUPS_MAX or reader:left() ~= count * GAPS_BYTES then
        return reader:refuse("%d bytes are not the length of %d groups", reader:left(), count)
    end
    for _ = 1, count do
        reader:take(h.session, 4)
        local group = reader:take(h.group, 1)
        if reader.refused then
            return
        end
        if group > GROUP_MAX or reader.tvb:range(reader.at, RESERVED_BYTES):uint() ~= 0 then
            return reader:refuse("group %d is not known, or reserved bytes are not 0", group)
        end
        reader.at = reader.at + RESERVED_BYTES
        reader:take_all({ { h.next, 4 }, { h.missing, 16 } })
    end
end

local function hop_experiment(reader)
    reader:take(h.counter, 4)
    if not reader.refused and reader:left() ~= EXPERIMENT_BYTES then
        return reader:refuse("%d bytes are not the length of an experiment", reader:left())
    end
    body(reader, EXPERIMENT_BYTES, EXPERIMENT)
end

local function counts(reader, kind)
    if kind == ECHO then
        reader:take(h.child, 4)
    end
    reader:take_all({ { h.packets, 8 }, { h.bytes, 8 } })
    if not reader.refused and reader:left() > 0 then
        reader:refuse("%d bytes follow the message", reader:left())
    end
end

-- Decodes a message without its MAC.
local function contents(reader, kind)
    local count = reader:take(h.count, 2)
    reader:take_all({ { h.nonce, 8 }, { h.number, 4 } })
    if count and count ~= 0 and kind ~= REPORT and kind ~= REPAIR then
        reader:refuse("a message without feedbacks counts %d", count)
    elseif kind == REPORT then
        report(reader, count)
    elseif kind == REPAIR then
        repair(reader, count)
    elseif kind == SOUNDING or kind == ECHO then
        counts(reader, kind)
    else
        hop_experiment(reader)
    end
end

local function hop_message(tvb, tree)
    local reader = common.reader(tvb, tree, hop_malformed)
    local kind = reader:take(h.kind, 1)
    if kind and not HOP_KINDS[kind] then
        reader:refuse("kind 0x%02x is not known", kind)
    end
    reader:show(h.sealed, 1)
    local flags = reader:take(h.flags, 1)
    if flags and flags > 1 then
        reader:refuse("the flags 0x%02x are not known", flags)
    elseif flags == 1 then
        reader.to = math.max(reader.to - MAC_BYTES, reader.at)
    end
    contents(reader, kind)
    if flags == 1 and not reader.refused then
        reader.to = tvb:len()
        reader:take(h.mac, MAC_BYTES)
    end
    return reader, kind
end

function hop_proto.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "HOP"
    local reader, kind = hop_message(tvb, common.subtree(tree, hop_proto, tvb))
    pinfo.cols.info = common.info(reader, HOP_KINDS[kind])
    return tvb:len()
end

common.register_udp_heuristic(hop_proto, function(tvb)
    return hop_message(tvb).refused == nil
end)

-- AMT (RFC 7450) has the same ports, and the version 0 in the high half of its first byte; here it
-- is 4. Wireshark's dissector gets all other messages.
local shared = Proto("manyflow_hop_or_amt", "AMT, or messages between hops of manyflow")
local AMT_PORT = 2268
local amt = DissectorTable.get("udp.port"):get_dissector(AMT_PORT)

function shared.dissector(tvb, pinfo, tree)
    local first = tvb:len() > 0 and tvb:range(0, 1):uint() or 0
    if math.floor(first / 16) == 4 then
        return hop_proto.dissector(tvb, pinfo, tree)
    elseif not common.call(amt, tvb, pinfo, tree) then
        pinfo.cols.info = "AMT [not dissected, because the capture holds only a part of the packet]"
    end
    return tvb:len()
end

common.register_ports(hop_proto, {
    { table = "udp.port", preference = "udp_ports", label = "UDP ports shared with AMT", default = "2268", dissector = shared },
})
