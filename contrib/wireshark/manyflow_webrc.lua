-- WEBRC's congestion control information (RFC 3738 section 5) in ALC packets (RFC 5775). The LCT
-- header, the FEC Payload ID and FLUTE are shown by Wireshark's own dissector `alc`.

local common = require("manyflow_common")

local proto = Proto("manyflow_webrc", "WEBRC of manyflow")
local malformed = common.malformed("manyflow_webrc")

local f = {
    ctsi = ProtoField.uint16("manyflow_webrc.ctsi", "Current time slot index (CTSI)"),
    channel = ProtoField.uint16("manyflow_webrc.channel", "Channel"),
    psn = ProtoField.uint32("manyflow_webrc.psn", "Packet sequence number (PSN)"),
}
proto.fields = f
proto.experts = { malformed }

local LCT_VERSION, FIXED_BYTES, PAYLOAD_ID_BYTES = 1, 4, 4
-- Header extensions from this type on are one word long (RFC 5651 section 5.2.1).
local FIRST_FIXED_EXTENSION = 128

-- Checks the header extensions from `at` to `stop`.
local function check_extensions(reader, at, stop)
    while at < stop do
        local het = reader.tvb:range(at, 1):uint()
        local length = 4
        if het < FIRST_FIXED_EXTENSION then
            length = at + 1 < stop and 4 * reader.tvb:range(at + 1, 1):uint() or 0
        end
        if length == 0 or at + length > stop then
            return reader:refuse("the header extension of type %d is longer than the header, or empty", het)
        end
        at = at + length
    end
end

-- Checks the LCT header. Returns the ends of the CCI and of the header.
local function lct_header(reader)
    local byte, lengths, words = reader:peek(1), reader:peek(1, 1), reader:peek(1, 2)
    if not reader:peek(FIXED_BYTES) then
        return reader:refuse("%d bytes are too few for an LCT header", reader:left())
    elseif math.floor(byte / 16) ~= LCT_VERSION then
        return reader:refuse("LCT version %d is not known: this is version %d", math.floor(byte / 16), LCT_VERSION)
    end
    local header = 4 * words
    if header > reader.to then
        return reader:refuse("the LCT header of %d bytes is longer than the packet", header)
    end
    local range = reader.tvb:range(1, 1)
    local half = 2 * range:bitfield(3, 1)
    local cci = FIXED_BYTES + 4 * (1 + reader.tvb:range(0, 1):bitfield(4, 2))
    local tsi = cci + 4 * range:bitfield(0, 1) + half
    local toi = tsi + 4 * range:bitfield(1, 2) + half
    if toi > header then
        return reader:refuse("the LCT header of %d bytes is shorter than its fields", header)
    end
    check_extensions(reader, toi, header)
    local rest = reader.to - header
    if rest > 0 and rest < PAYLOAD_ID_BYTES then
        reader:refuse("the packet ends in the FEC Payload ID")
    elseif rest > 0 and toi == tsi then
        reader:refuse("data without an object (TOI)")
    end
    return cci, header
end

local function cci_field(reader, bytes)
    local half = bytes / 2
    if bytes ~= 4 and bytes ~= 8 then
        return reader:refuse("a CCI of %d bytes: WEBRC has 4 or 8", bytes)
    end
    local ctsi, channel = reader:take(f.ctsi, half / 2), reader:take(f.channel, half / 2)
    local psn = reader:take(f.psn, half)
    return ctsi, channel, psn
end

-- Decodes a packet. Returns its reader and the values of the CCI.
local function decode(tvb, tree)
    local reader = common.reader(tvb, tree, malformed)
    local stop = lct_header(reader)
    if reader.refused then
        return reader
    end
    reader.at = FIXED_BYTES
    return reader, cci_field(reader, stop - FIXED_BYTES)
end

local alc_found, alc = pcall(Dissector.get, "alc")
-- The frame whose CCI is shown already.
local shown

function proto.dissector(tvb, pinfo, tree)
    common.call(alc_found and alc, tvb, pinfo, tree)
    shown = pinfo.number
    pinfo.cols.protocol = "WEBRC"
    local reader, ctsi, channel, psn = decode(tvb, common.subtree(tree, proto, tvb))
    local text = psn and string.format("channel %d, packet %.0f, time slot %d", channel, psn, ctsi)
    pinfo.cols.info = common.info(reader, text)
    return tvb:len()
end

-- ALC packets for groups, with the fields that senders write: an object of 32 bits, unless the
-- packet closes the session, and a session of 32 bits.
common.register_udp_heuristic(proto, function(tvb, pinfo)
    if not common.is_multicast(pinfo) or tvb:len() < 16 or decode(tvb).refused then
        return false
    end
    local lengths = tvb:range(1, 1):uint()
    return lengths % 0x20 < 4 and (math.floor(lengths / 0x20) == 5 or lengths == 0x82)
end)

common.register_ports(proto, {
    { table = "udp.port", preference = "udp_ports", label = "UDP ports", default = "5445" },
})

-- Packets that Wireshark takes for ALC by "Decode As" get the CCI, too.
local behind = Proto("manyflow_webrc_behind_alc", "WEBRC behind ALC")
local cci = Field.new("rmt-lct.cci")

function behind.dissector(_, pinfo, tree)
    if shown == pinfo.number then
        return
    end
    for _, found in ipairs({ cci() }) do
        local range = found.range
        local item = tree:add(proto, range)
        local reader = common.reader(range:tvb(), item, malformed)
        cci_field(reader, reader:left())
    end
end
register_postdissector(behind)
