//! The names of a store, in order, as all its members know them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use manyflow_store::{Hash, Manifest, MemberName, Query, Reply, Summary, Surveyed};

use super::client::check_complete;
use super::{Connect, StoreClient, StoreError};

/// A part of the names, in order.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The files by name, also those that were removed.
    pub files: BTreeMap<String, Listed<T>>,
    /// The name behind which to ask for the next part; `None` after the last part.
    pub next: Option<String>,
    /// The members that have answered.
    pub members: BTreeSet<MemberName>,
}

/// A file, as the members know it.
#[derive(Clone, Debug)]
pub struct Listed<T> {
    /// The newest that a member has.
    pub newest: T,
    /// The members that have it.
    pub holders: BTreeSet<MemberName>,
    /// The members that have an older one.
    pub outdated: BTreeSet<MemberName>,
}

/// A file in a listing.
pub(super) trait Entry: Clone {
    fn name(&self) -> &str;
    /// Returns what decides which of two is newer.
    fn rank(&self) -> (u64, u32, Hash);
    fn of_reply(reply: &Reply) -> Option<(Vec<Self>, bool)>;
}

impl Entry for Summary {
    fn name(&self) -> &str {
        &self.name
    }

    fn rank(&self) -> (u64, u32, Hash) {
        let (version, revision) = Summary::rank(self);
        (version, revision, Hash([0; 32]))
    }

    fn of_reply(reply: &Reply) -> Option<(Vec<Summary>, bool)> {
        match reply {
            Reply::Summaries { files, has_more } => Some((files.clone(), *has_more)),
            _ => None,
        }
    }
}

/// A manifest, with the digest of its bytes.
pub(super) type Hashed = (Manifest, Hash);

impl Entry for Hashed {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn rank(&self) -> (u64, u32, Hash) {
        (self.0.version, self.0.revision, self.1)
    }

    fn of_reply(reply: &Reply) -> Option<(Vec<Hashed>, bool)> {
        let Reply::Manifests { files, has_more } = reply else {
            return None;
        };
        let read = |bytes: &Bytes| Some((Manifest::decode(bytes).ok()?, Hash::of(bytes)));
        Some((files.iter().filter_map(read).collect(), *has_more))
    }
}

impl<C: Connect> StoreClient<C> {
    /// Returns the first names behind `after` (all, if it is empty) that begin with `prefix`.
    ///
    /// # Errors
    /// If a member does not answer, or the service cannot be reached.
    pub async fn list(&self, prefix: &str, after: &str) -> Result<Page<Summary>, StoreError> {
        self.page(prefix, after, false).await
    }

    /// Returns the manifests of all files whose names begin with `prefix`, in the order of the
    /// names.
    ///
    /// # Errors
    /// If a member does not answer, or the service cannot be reached.
    pub async fn read_manifests(&self, prefix: &str) -> Result<Vec<Manifest>, StoreError> {
        let (mut after, mut manifests) = (String::new(), Vec::new());
        loop {
            let page = self.manifests(prefix, &after).await?;
            let newest = page.files.into_values().map(|file| file.newest.0);
            manifests.extend(newest.filter(|manifest| !manifest.is_removed));
            match page.next {
                Some(next) => after = next,
                None => return Ok(manifests),
            }
        }
    }

    /// Returns a part of the manifests, as [`StoreClient::list`] does.
    pub(super) async fn manifests(
        &self,
        prefix: &str,
        after: &str,
    ) -> Result<Page<Hashed>, StoreError> {
        self.page(prefix, after, true).await
    }

    async fn page<T: Entry>(
        &self,
        prefix: &str,
        after: &str,
        is_full: bool,
    ) -> Result<Page<T>, StoreError> {
        let query = Query::Names {
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            is_full,
        };
        let surveyed = self.survey(vec![query]).await?;
        surveyed.iter().try_for_each(check_complete)?;
        Ok(surveyed.iter().map(merge).next().unwrap_or_else(empty))
    }
}

fn empty<T>() -> Page<T> {
    Page {
        files: BTreeMap::new(),
        next: None,
        members: BTreeSet::new(),
    }
}

/// Merges the answers of the members. They end at different names, so the part ends at the first of
/// these.
fn merge<T: Entry>(answers: &Surveyed) -> Page<T> {
    let mut page = empty();
    page.members.extend(answers.replies.keys().cloned());
    let replies: Vec<_> = answers
        .replies
        .iter()
        .filter_map(|(member, reply)| Some((member, T::of_reply(reply)?)))
        .collect();
    let unfinished = replies.iter().filter(|(_, (_, has_more))| *has_more);
    let ends = unfinished.filter_map(|(_, (files, _))| files.last().map(Entry::name));
    page.next = ends.min().map(str::to_owned);
    for (member, (files, _)) in &replies {
        let end = page.next.clone();
        let files = files.iter();
        for file in files.filter(|file| end.as_deref().is_none_or(|end| file.name() <= end)) {
            add(&mut page.files, member, file);
        }
    }
    page
}

fn add<T: Entry>(files: &mut BTreeMap<String, Listed<T>>, member: &MemberName, file: &T) {
    let listed = files
        .entry(file.name().to_owned())
        .or_insert_with(|| Listed {
            newest: file.clone(),
            holders: BTreeSet::new(),
            outdated: BTreeSet::new(),
        });
    match file.rank().cmp(&listed.newest.rank()) {
        std::cmp::Ordering::Less => {
            listed.outdated.insert(member.clone());
        }
        std::cmp::Ordering::Equal => {
            listed.holders.insert(member.clone());
        }
        std::cmp::Ordering::Greater => {
            listed.outdated.append(&mut listed.holders);
            listed.newest = file.clone();
            listed.holders.insert(member.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(name: &str, version: u64) -> Summary {
        Summary::of(&Manifest {
            version,
            ..Manifest::empty(name, 1)
        })
    }

    fn member(name: &str) -> MemberName {
        MemberName::new(name).unwrap()
    }

    #[test]
    fn a_page_ends_where_the_first_member_does_and_has_the_newest_of_each_name() {
        let answer = |files: &[(&str, u64)], has_more| Reply::Summaries {
            files: files
                .iter()
                .map(|(name, version)| summary(name, *version))
                .collect(),
            has_more,
        };
        let replies = [
            ("a", answer(&[("1", 1), ("2", 5), ("9", 1)], false)),
            ("b", answer(&[("1", 1), ("2", 7), ("3", 1)], true)),
            ("c", answer(&[("2", 5), ("3", 1), ("4", 1)], true)),
        ];
        let answers = Surveyed {
            query: 0,
            replies: replies.map(|(name, reply)| (member(name), reply)).into(),
            failures: BTreeMap::new(),
            is_complete: true,
        };
        let page: Page<Summary> = merge(&answers);
        assert_eq!(page.next.as_deref(), Some("3"));
        let names: Vec<_> = page.files.keys().map(String::as_str).collect();
        assert_eq!(names, ["1", "2", "3"]);
        let second = &page.files["2"];
        assert_eq!(second.newest.version, 7);
        assert_eq!(second.holders, [member("b")].into());
        assert_eq!(second.outdated, ["a", "c"].map(member).into());
        assert_eq!(page.members.len(), 3);
    }
}
