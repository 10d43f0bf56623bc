-- ACP (Anypoint-XCP) with XCP's congestion header, in the format of manyflow-anypoint/src/wire.rs.
-- Live ends add a cookie to Open, and send Challenges, probes of the path, parts of datagrams, and
-- Admissions: Accepts with a prefix (manyflow-ensembles/src/anypoint/envelope.rs).

local common = require("manyflow_common")

local proto = Proto("manyflow_acp", "ACP of manyflow")
local malformed = common.malformed("manyflow_acp")

local TYPES = {
    [1] = "Open", [2] = "Accept", [3] = "Data", [4] = "Ack",
    [5] = "Close", [6] = "Probe", [7] = "Alive", [8] = "Reset",
    [9] = "PathProbe", [10] = "PathAnswer", [11] = "Part",
    [12] = "Admission",
}
local OPEN, ACCEPT, DATA, ACK, CLOSE, PROBE, RESET = 1, 2, 3, 4, 5, 6, 8
local PATH_PROBE, PATH_ANSWER, PART, ADMISSION, PARTS_MAX = 9, 10, 11, 12, 17
local PREFIX_MAX = 1023
local REASONS = { [1] = "unknown connection", [2] = "refused", [3] = "timed out", [4] = "aborted" }
local VERSION, CHALLENGE, COOKIE_BYTES = 1, 0x80, 16

local f = {
    challenge = ProtoField.bool("manyflow_acp.challenge", "Challenge", 8, nil, CHALLENGE),
    version = ProtoField.uint8("manyflow_acp.version", "Version", base.DEC, nil, 0x7f),
    type = ProtoField.uint8("manyflow_acp.type", "Type", base.DEC, TYPES),
    reason = ProtoField.uint8("manyflow_acp.reason", "Reason", base.DEC, REASONS),
    reserved = ProtoField.uint8("manyflow_acp.reserved", "Reserved", base.HEX),
    flags = ProtoField.uint8("manyflow_acp.flags", "Flags", base.HEX),
    answered = ProtoField.bool("manyflow_acp.answered", "An XCP router has handled the frame", 8, nil, 1),
    averaged = ProtoField.bool("manyflow_acp.averaged", "A switch has averaged the feedback", 8, nil, 2),
    connection = ProtoField.uint32("manyflow_acp.connection", "Connection", base.HEX),
    credit = ProtoField.uint32("manyflow_acp.credit", "Credit in bytes"),
    sequence = ProtoField.uint32("manyflow_acp.sequence", "Sequence number"),
    of = ProtoField.uint32("manyflow_acp.of", "Acknowledges frame"),
    cumulative = ProtoField.uint32("manyflow_acp.cumulative", "Cumulative acknowledgement"),
    feedback = ProtoField.int32("manyflow_acp.feedback", "Window change in 1/256 byte"),
    change = ProtoField.double("manyflow_acp.feedback_bytes", "Window change in bytes"),
    cwnd = ProtoField.uint32("manyflow_acp.cwnd", "Congestion window in bytes"),
    rtt_us = ProtoField.uint32("manyflow_acp.rtt_us", "Round-trip time in us"),
    key = ProtoField.uint32("manyflow_acp.key", "Key of the frame", base.HEX),
    gap = ProtoField.none("manyflow_acp.gap", "Gap"),
    offset = ProtoField.uint16("manyflow_acp.gap.offset", "Offset from the cumulative acknowledgement"),
    frames = ProtoField.uint16("manyflow_acp.gap.frames", "Missing frames"),
    cookie = ProtoField.bytes("manyflow_acp.cookie", "Cookie"),
    path_id = ProtoField.uint32("manyflow_acp.path.id", "Number of the probe"),
    path_bytes = ProtoField.uint16("manyflow_acp.path.bytes", "Bytes that have arrived"),
    path_zeros = ProtoField.uint16("manyflow_acp.path.zeros", "Zeros"),
    padding = ProtoField.bytes("manyflow_acp.path.padding", "Padding"),
    part_index = ProtoField.uint8("manyflow_acp.part.index", "Part of the datagram"),
    part_count = ProtoField.uint8("manyflow_acp.part.count", "Number of parts"),
    part_datagram = ProtoField.uint16("manyflow_acp.part.datagram", "Number of the datagram"),
    part_total = ProtoField.uint16("manyflow_acp.part.total", "Length of the datagram"),
    part = ProtoField.bytes("manyflow_acp.part.bytes", "Part"),
    prefix = ProtoField.uint16("manyflow_acp.prefix", "Prefix of the initiator"),
    frame = ProtoField.bytes("manyflow_acp.frame", "Frame"),
    fragment = ProtoField.none("manyflow_acp.fragment", "Fragment of a message"),
    last = ProtoField.bool("manyflow_acp.fragment.last", "Last fragment", 8, nil, 1),
    sealed = ProtoField.bool("manyflow_acp.fragment.sealed", "Sealed", 8, nil, 2),
    index = ProtoField.uint16("manyflow_acp.fragment.index", "Fragment of the message"),
    message = ProtoField.uint64("manyflow_acp.fragment.message", "Message", base.HEX),
}
proto.fields = f
proto.experts = { malformed }

local FRAGMENT_BYTES = 12

-- The header of a fragment (manyflow-ensembles/src/anypoint/fragment.rs), if the frame begins with one.
-- Frames of other applications, and the zeros of a simulation, are bytes.
local function fragment(reader)
    local flags, reserved = reader:peek(1), reader:peek(1, 1)
    local is_fragment = reader:left() >= FRAGMENT_BYTES and flags < 4 and reserved == 0
    if reader.refused or not reader.tree or not is_fragment or reader:is_zero(FRAGMENT_BYTES) then
        return
    end
    local tvb, at = reader.tvb, reader.at
    local tree = reader.tree:add(f.fragment, tvb:range(at, FRAGMENT_BYTES))
    tree:add(f.last, tvb:range(at, 1))
    tree:add(f.sealed, tvb:range(at, 1))
    tree:add(f.index, tvb:range(at + 2, 2))
    tree:add(f.message, tvb:range(at + 4, 8))
end

local function feedback(reader)
    reader:take(f.feedback, 4)
    if not reader.refused then
        local range = reader.tvb:range(reader.at - 4, 4)
        reader:computed(f.change, 4, range:int() / 256)
    end
end

local function data(reader)
    reader:take(f.sequence, 4)
    feedback(reader)
    reader:take_all({ { f.cwnd, 4 }, { f.rtt_us, 4 }, { f.key, 4 } })
    fragment(reader)
    reader:rest(f.frame)
end

-- One gap. Returns the lowest offset of the next; nil behind a gap that is not in use.
local function gap(reader, free)
    local tree = reader:open(f.gap, 4)
    local offset, frames = reader:take(f.offset, 2), reader:take(f.frames, 2)
    if reader.refused then
        free = nil
    elseif frames == 0 and offset ~= 0 then
        reader:refuse("a gap without frames has an offset that is not zero")
    elseif frames == 0 then
        free = nil
    elseif not free then
        reader:refuse("a gap follows one that is not in use")
    elseif offset < free then
        reader:refuse("a gap begins before or right behind the end of the one before it")
    elseif offset + frames > 65536 then
        reader:refuse("a gap ends beyond 65,536 frames after the cumulative number")
    else
        free = offset + frames + 1
    end
    reader.tree = tree
    return free
end

local function ack(reader)
    reader:take(f.of, 4)
    feedback(reader)
    reader:take_all({ { f.cumulative, 4 }, { f.credit, 4 } })
    local free = 0
    for _ = 1, 3 do
        if not reader.refused then
            free = gap(reader, free)
        end
    end
end

-- The first word. Returns the type and whether the segment is a Challenge.
local function first(reader)
    local byte = reader:peek(1)
    reader:show(f.challenge, 1)
    reader:take(f.version, 1)
    if byte and byte % CHALLENGE ~= VERSION then
        reader:refuse("version %d is not known: this is version %d", byte % CHALLENGE, VERSION)
    end
    local kind = reader:take(f.type, 1)
    if kind and (not TYPES[kind] or kind > RESET) then
        reader:refuse("type %d is not known: types are 1 to 8", kind)
    end
    local reason = reader:take(kind == RESET and f.reason or f.reserved, 1)
    if reason and kind == RESET and not REASONS[reason] then
        reader:refuse("reason %d for a reset is not known: reasons are 1 to 4", reason)
    elseif reason and kind ~= RESET and reason ~= 0 then
        reader:refuse("reserved bits are not zero")
    end
    if kind == DATA or kind == ACK then
        reader:show(f.answered, 1)
    end
    if kind == ACK then
        reader:show(f.averaged, 1)
    end
    local flags = reader:take(f.flags, 1)
    local known = kind == DATA and 1 or kind == ACK and 3 or 0
    if flags and flags > known then
        reader:refuse("reserved bits are not zero")
    end
    return kind, byte and byte >= CHALLENGE
end

-- What follows the connection in each type.
local function body(reader, kind)
    if kind == DATA then
        data(reader)
    elseif kind == ACK then
        ack(reader)
    elseif kind == OPEN or kind == ACCEPT then
        reader:take(f.credit, 4)
    elseif kind == CLOSE then
        reader:take(f.sequence, 4)
    end
end

-- The rest of a part, after its connection.
local function part(reader, index, count)
    reader:take(f.part_datagram, 2)
    local total = reader:take(f.part_total, 2)
    if not total or count < 2 or count > PARTS_MAX or index >= count then
        return reader:refuse("part %d of %d is not one of 2 to %d", index, count, PARTS_MAX)
    end
    local each = math.ceil(total / count)
    local length = math.min(each * (index + 1), total) - math.min(each * index, total)
    if length == 0 or length ~= reader:left() then
        return reader:refuse("the part has not the length that its header states")
    end
    reader:take(f.part, length)
end

-- The rest of an Admission, after its type.
local function admission(reader)
    local prefix = reader:take(f.prefix, 2)
    if prefix and (prefix == 0 or prefix > PREFIX_MAX) then
        reader:refuse("prefix %d is not one of 1 to %d", prefix, PREFIX_MAX)
    end
    local connection = reader:take(f.connection, 4)
    reader:take(f.credit, 4)
    if not reader.refused and reader:left() > 0 then
        reader:refuse("%d bytes follow an admission", reader:left())
    end
    return reader, TYPES[ADMISSION], connection
end

-- A datagram about the path, or an Admission.
local function path(reader, kind)
    reader:show(f.challenge, 1)
    reader:take(f.version, 1)
    reader:take(f.type, 1)
    local index, count, connection
    if kind == ADMISSION then
        return admission(reader)
    elseif kind == PART then
        index, count = reader:take(f.part_index, 1), reader:take(f.part_count, 1)
        connection = reader:take(f.connection, 4)
        if connection then
            part(reader, index, count)
        end
        return reader, TYPES[kind], connection
    end
    local middle = reader:take(kind == PATH_ANSWER and f.path_bytes or f.path_zeros, 2)
    connection = reader:take(f.connection, 4)
    reader:take(f.path_id, 4)
    local left = reader:left()
    if not reader.refused and kind == PATH_PROBE then
        local has_others = left > 0 and reader.tvb:raw(reader.at, left):find("[^%z]")
        if middle ~= 0 or has_others then
            reader:refuse("the padding is not zero")
        elseif left > 0 then
            reader:take(f.padding, left)
        end
    elseif not reader.refused and left > 0 then
        reader:refuse("%d bytes follow an answer", left)
    end
    return reader, TYPES[kind], connection
end

local function decode(tvb, tree)
    local reader = common.reader(tvb, tree, malformed)
    local second = reader:peek(1, 1)
    if reader:peek(1) == CHALLENGE + VERSION and second and second >= PATH_PROBE and second <= ADMISSION then
        return path(reader, second)
    end
    local kind, is_challenge = first(reader)
    if is_challenge and kind ~= PROBE then
        reader:refuse("a challenge has the type of a probe")
    end
    local connection = reader:take(f.connection, 4)
    body(reader, kind)
    -- A simulated Open ends before the cookie.
    if is_challenge or kind == OPEN and reader:left() > 0 then
        reader:take(f.cookie, COOKIE_BYTES)
    end
    if not reader.refused and reader:left() > 0 then
        reader:refuse("%d bytes follow a segment that carries no frame", reader:left())
    end
    local name = is_challenge and "Challenge" or TYPES[kind]
    return reader, name, connection
end

function proto.dissector(tvb, pinfo, tree)
    pinfo.cols.protocol = "ACP"
    local reader, name, connection = decode(tvb, common.subtree(tree, proto, tvb))
    pinfo.cols.info = common.info(reader, connection and string.format("%s, connection 0x%08x", name or "?", connection))
    return tvb:len()
end

-- Segments go from one end to another. Decoding is strict, so few other packets pass.
common.register_udp_heuristic(proto, function(tvb, pinfo)
    return not common.is_multicast(pinfo) and decode(tvb).refused == nil
end)

common.register_ports(proto, {
    { table = "udp.port", preference = "udp_ports", label = "UDP ports", default = "7000-7004" },
})
