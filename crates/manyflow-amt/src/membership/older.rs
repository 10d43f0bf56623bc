//! The reports of IGMPv2 (RFC 2236, section 2) and MLDv1 (RFC 2710, section 3), which name a group
//! but no source.
//!
//! RFC 3376 (section 7.3.2) and RFC 3810 (section 8.3.2) translate them into records: a report
//! receives the group from any source, and a leave no longer receives it.

use super::{Family, GroupRecord, MembershipError, RecordType, Report, address};

const IGMPV2_REPORT: u8 = 0x16;
const IGMPV2_LEAVE: u8 = 0x17;
const MLDV1_REPORT: u8 = 131;
const MLDV1_DONE: u8 = 132;

/// Returns the meaning of an IGMPv2 or MLDv1 message, given its family and type; `None` for other
/// types.
pub(super) fn kind(family: Family, message_type: u8) -> Option<RecordType> {
    match (family, message_type) {
        (Family::V4, IGMPV2_REPORT) | (Family::V6, MLDV1_REPORT) => Some(RecordType::IsExclude),
        (Family::V4, IGMPV2_LEAVE) | (Family::V6, MLDV1_DONE) => Some(RecordType::ToInclude),
        _ => None,
    }
}

/// Decodes the group of a message of this kind. Ignores bytes after it (RFC 2236, section 2.5).
pub(super) fn decode(
    family: Family,
    kind: RecordType,
    message: &[u8],
) -> Result<Report, MembershipError> {
    let group_at = match family {
        Family::V4 => 4,
        Family::V6 => 8,
    };
    let group = message
        .get(group_at..group_at + family.address_len())
        .ok_or(MembershipError::Truncated)?;
    Ok(Report {
        family,
        records: vec![GroupRecord {
            kind,
            group: address(group),
            sources: Vec::new(),
        }],
    })
}
