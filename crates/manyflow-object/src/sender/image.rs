//! The sender of an image: sends sections as they are sealed, and repeats them in turn.
//!
//! ```text
//! sections:  0 1 2 3 4 5      <- push
//!                    ^ first visits, in order
//!            ^ later visits, in turn, while there is no new section
//! ```
//!
//! A visit is an [`ObjectSender`] of one section, which exists as long as the visit. Between
//! visits, a section is its sealed table, and the number of the first symbol that was not sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::table::{choose_oti, describe, fdt_oti, table_source};
use super::windows::demand_of_visit;
use super::{
    Demand, Digests, Flags, MemoryStorage, ObjectSender, SenderConfig, SourceFile, check_config,
    overhead,
};
use crate::error::{ReadError, SendError};
use crate::fdt::{FdtInstance, Section};
use crate::fec::{BlockDigest, EncodeJob, Encoded, Oti};
use crate::image::{self, SIGNATURE_BYTES};
use crate::source::Source;

/// The number of later visits that are prepared, the present one included, so that their repair
/// symbols are encoded in time.
const REPEATS_AHEAD: usize = 2;
/// The numbers of symbols that visits begin with are below this one: RaptorQ has twice as many.
const FIRST_SYMBOL_MAX: u32 = 1 << 23;

/// A section with its digests and its signed table.
pub struct SealedSection {
    number: u32,
    name: Arc<str>,
    source: Arc<dyn Source>,
    digests: Vec<BlockDigest>,
    oti: Oti,
    fdt: Bytes,
    /// The number of the first symbol of the next visit.
    next_symbol: u32,
}

impl SealedSection {
    /// Reads the content of a section of the image `name`, and signs the section's table. `is_last`
    /// says that no section follows.
    ///
    /// # Errors
    /// If the configuration is invalid, or the content cannot be read or has too many symbols.
    ///
    /// # Panics
    /// If the section's number is above [`Section::NUMBER_MAX`].
    pub fn seal(
        config: &SenderConfig,
        name: &str,
        section: Section,
        is_last: bool,
        content: Arc<dyn Source>,
        sign: &dyn Fn(&[u8]) -> [u8; SIGNATURE_BYTES],
    ) -> Result<SealedSection, SendError> {
        assert!(section.number <= Section::NUMBER_MAX, "{section:?}");
        check_config(config)?;
        let file = SourceFile {
            // Receivers that do not know sections store them in the order of their names.
            name: format!("{name}/{:07}", section.number),
            content,
            bundle: None,
            attributes: None,
        };
        let oti = choose_oti(config, &file)?;
        let digests = Digests::of(&*file.content, &oti, config.content_md5, None);
        let digests = digests.map_err(|error| ReadError {
            name: name.to_owned(),
            error,
        })?;
        let toi = section.number + 1;
        let mut entry = describe(toi, &file, &oti, &digests)?;
        entry.section = Some(section);
        let instance = FdtInstance {
            expires: config.expires.into(),
            complete: is_last,
            files: vec![entry],
        };
        let mut fdt = instance.encode();
        image::sign(&mut fdt, sign);
        fdt_oti(config, fdt.len())?;
        Ok(SealedSection {
            number: section.number,
            name: name.into(),
            source: file.content,
            digests: digests.blocks,
            oti,
            fdt: fdt.into(),
            next_symbol: config.first_symbol,
        })
    }
}

/// Turns the sections of an image into datagrams.
///
/// The output is a pure function of the configuration, the sections and the calls.
pub struct ImageSender {
    config: SenderConfig,
    sections: Vec<SealedSection>,
    /// The number of sections that have had their first visit.
    visited: usize,
    /// The section of the next later visit that will be prepared.
    next_repeat: usize,
    /// The first visit that is under way.
    first: Option<UnderWay>,
    /// Later visits: the one that is under way, and those that are prepared.
    repeats: VecDeque<UnderWay>,
    visits: u64,
}

/// A visit of a section.
#[derive(Clone, Copy)]
pub(super) struct Visit {
    /// The visit's number.
    pub(super) number: u64,
    /// The section's TOI.
    toi: u32,
}

impl Visit {
    /// The FDT Instance ID: the number of the section.
    pub(super) fn instance(self) -> u32 {
        self.toi - 1
    }
}

impl<S> ObjectSender<S> {
    /// Whether a unit is served all the time, not in visits.
    pub(super) fn is_steady(&self, unit: usize) -> bool {
        unit < self.fdt_units
            || self.is_focused(unit)
            || (self.visit.is_none() && self.windows.is_steady(unit))
    }

    /// Returns the TOI of an object in packets.
    pub(super) fn wire_toi(&self, toi: u32) -> u32 {
        let visit = self.visit.filter(|_| toi > 0);
        visit.map_or(toi, |visit| visit.toi)
    }

    pub(super) fn demand(&self, unit: usize) -> Demand {
        if self.is_focused(unit) {
            return Demand::Steady { share: 1.0 };
        }
        let symbols = self.units[unit].block.symbols();
        match self.is_steady(unit) || self.visit.is_none() {
            true => self.windows.demand(unit, symbols, self.plain_units()),
            false => demand_of_visit(symbols),
        }
    }
}

struct UnderWay {
    visit: u64,
    objects: ObjectSender<MemoryStorage>,
    packets_left: u64,
}

impl ImageSender {
    /// Creates a sender that begins with `first`, the section with number 0.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: SenderConfig, first: SealedSection) -> Result<ImageSender, SendError> {
        check_config(&config)?;
        debug_assert_eq!(first.number, 0, "an image begins with its first section");
        let mut sender = ImageSender {
            config,
            sections: vec![first],
            visited: 0,
            next_repeat: 0,
            first: None,
            repeats: VecDeque::new(),
            visits: 0,
        };
        sender.start_first_visit();
        Ok(sender)
    }

    /// Adds the next section.
    pub fn push(&mut self, section: SealedSection) {
        debug_assert_eq!(
            section.number as usize,
            self.sections.len(),
            "sections come in order"
        );
        self.sections.push(section);
        self.start_first_visit();
    }

    /// The number of sections that have not been sent yet.
    pub fn unsent(&self) -> usize {
        self.sections.len() - self.visited
    }

    /// The length of a full datagram in bytes.
    pub fn datagram_length(&self) -> usize {
        overhead(self.config.cci_length) + usize::from(self.config.symbol_length)
    }

    /// Appends the next datagram of `layer`, as [`ObjectSender::next_datagram`] does.
    ///
    /// # Errors
    /// If the image cannot be read.
    ///
    /// # Panics
    /// As [`ObjectSender::next_datagram`].
    pub fn next_datagram(
        &mut self,
        layer: u16,
        cci: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        self.end_visit();
        let current = self.current();
        current.packets_left = current.packets_left.saturating_sub(1);
        current.objects.next_datagram(layer, cci, out)
    }

    /// Appends a datagram of the FDT Instance of the section that is being sent.
    ///
    /// # Errors
    /// If its symbols cannot be stored.
    ///
    /// # Panics
    /// As [`ObjectSender::next_fdt_datagram`].
    pub fn next_fdt_datagram(&mut self, cci: &[u8], out: &mut Vec<u8>) -> Result<(), ReadError> {
        self.end_visit();
        self.current().objects.next_fdt_datagram(cci, out)
    }

    /// Appends a datagram that announces the end of the session.
    ///
    /// # Panics
    /// As [`ObjectSender::close_datagram`].
    pub fn close_datagram(&self, cci: &[u8], out: &mut Vec<u8>) {
        let visit = self.first.as_ref().or(self.repeats.front());
        let visit = visit.expect("a visit is always under way");
        let objects = &visit.objects;
        objects.append_header(None, Flags::ClosesSession, &[], cci, out);
    }

    /// Returns a job that encodes repair symbols, which [`ObjectSender::next_job`] explains.
    pub fn next_job(&mut self) -> Option<EncodeJob> {
        let visits = self.first.iter_mut().chain(&mut self.repeats);
        visits
            .into_iter()
            .find_map(|visit| visit.objects.next_job())
    }

    /// Stores the result of a job, unless its visit is over.
    ///
    /// # Errors
    /// If the symbols cannot be stored.
    pub fn finish_job(&mut self, encoded: &Encoded) -> Result<(), ReadError> {
        let mut visits = self.first.iter_mut().chain(&mut self.repeats);
        match visits.find(|visit| visit.visit == encoded.visit) {
            Some(visit) => visit.objects.finish_job(encoded),
            None => Ok(()),
        }
    }

    fn current(&mut self) -> &mut UnderWay {
        let visit = self.first.as_mut().or(self.repeats.front_mut());
        visit.expect("a visit is always under way")
    }

    /// Ends the present visit if all its packets were sent, and begins the next.
    fn end_visit(&mut self) {
        if self.current().packets_left > 0 {
            return;
        }
        if self.first.take().is_some() {
            self.start_first_visit();
        } else {
            self.repeats.pop_front();
        }
        while self.first.is_none() && self.repeats.len() < REPEATS_AHEAD {
            self.prepare_repeat();
        }
    }

    /// Begins the first visit of the next section, if there is one. A later visit that is under way
    /// continues when there is no new section.
    fn start_first_visit(&mut self) {
        if self.first.is_none() && self.visited < self.sections.len() {
            self.first = Some(self.visit(self.visited));
            self.visited += 1;
        }
    }

    fn prepare_repeat(&mut self) {
        let visit = self.visit(self.next_repeat);
        self.next_repeat = (self.next_repeat + 1) % self.visited;
        self.repeats.push_back(visit);
    }

    fn visit(&mut self, place: usize) -> UnderWay {
        self.visits += 1;
        let visit = Visit {
            number: self.visits,
            toi: self.sections[place].number + 1,
        };
        let section = &mut self.sections[place];
        let mut config = self.config.clone();
        config.seed = config.seed.wrapping_add(self.visits);
        config.first_symbol = section.next_symbol;
        config.window_symbols = None;
        let content = super::ObjectSource {
            name: Arc::clone(&section.name),
            source: Arc::clone(&section.source),
            digests: section.digests.clone(),
            is_withdrawn: false,
        };
        let fdt_oti = fdt_oti(&config, section.fdt.len()).expect("checked when it was sealed");
        let mut objects = ObjectSender::of_objects(
            config,
            vec![table_source(section.fdt.clone()), content],
            &section.fdt,
            fdt_oti,
            vec![section.oti],
            MemoryStorage::default(),
            Some(visit),
        );
        // Visits of a short block do not all repeat the same symbol.
        for unit in &mut objects.units {
            unit.block.shuffle_repetitions(&mut objects.rng);
        }
        let packets_left = objects.windows.packets_of_visit();
        // No block sends more symbols in a visit.
        let next = u64::from(section.next_symbol) + packets_left;
        section.next_symbol = (next % u64::from(FIRST_SYMBOL_MAX)) as u32;
        UnderWay {
            visit: self.visits,
            objects,
            packets_left,
        }
    }
}
