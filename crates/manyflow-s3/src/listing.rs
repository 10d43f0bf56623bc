//! Listings with prefixes and delimiters.

use manyflow_ensembles::store::{Connect, StoreClient, StoreError};
use manyflow_store::Summary;
use s3s::dto::{CommonPrefix, Object, ObjectStorageClass};

use crate::object::{Attributes, bucket_name, time_of};

/// The last character: a name behind all names that begin with a prefix begins with both.
const LAST: char = char::MAX;

/// A request for a listing.
#[derive(Clone, Debug)]
pub(crate) struct ListRequest {
    pub(crate) bucket: String,
    /// The beginning of the keys.
    pub(crate) prefix: String,
    /// Only keys behind this one.
    pub(crate) after: String,
    /// Keys with the same beginning up to this text are one entry.
    pub(crate) delimiter: Option<String>,
    /// The most entries.
    pub(crate) most: usize,
}

/// A part of a listing.
#[derive(Debug, Default)]
pub(crate) struct ObjectList {
    pub(crate) objects: Vec<Object>,
    pub(crate) prefixes: Vec<CommonPrefix>,
    /// The last entry, if there are more.
    pub(crate) next: Option<String>,
}

impl ObjectList {
    fn len(&self) -> usize {
        self.objects.len() + self.prefixes.len()
    }
}

/// Lists objects.
pub(crate) async fn list<C: Connect>(
    client: &StoreClient<C>,
    request: &ListRequest,
) -> Result<ObjectList, StoreError> {
    let folder = bucket_name(&request.bucket);
    let (mut list, mut last) = (ObjectList::default(), None);
    // A common prefix as the place to go on stands for all keys that begin with it.
    let after_prefix = request.delimiter.as_ref();
    let after_prefix = after_prefix.is_some_and(|d| request.after.ends_with(d.as_str()));
    let mut after = match after_prefix && !request.after.is_empty() {
        true => format!("{folder}{}{LAST}", request.after),
        false => format!("{folder}{}", request.after),
    };
    loop {
        let page = client
            .list(&format!("{folder}{}", request.prefix), &after)
            .await?;
        let files = page.files.values().filter(|file| !file.newest.is_removed);
        for file in files {
            let name = &file.newest.name;
            let key = &name[folder.len()..];
            if key.is_empty() || *name <= after {
                continue;
            }
            if list.len() == request.most {
                list.next = last;
                return Ok(list);
            }
            match common_prefix(request, key) {
                Some(prefix) => {
                    after = format!("{folder}{prefix}{LAST}");
                    last = Some(prefix.clone());
                    list.prefixes.push(CommonPrefix {
                        prefix: Some(prefix),
                    });
                }
                None => {
                    last = Some(key.to_owned());
                    list.objects.push(object(key, &file.newest));
                }
            }
        }
        match page.next {
            Some(next) => after = after.max(next),
            None => return Ok(list),
        }
    }
}

/// Returns the beginning of a key up to the first delimiter behind the request's prefix.
fn common_prefix(request: &ListRequest, key: &str) -> Option<String> {
    let delimiter = request.delimiter.as_deref().filter(|d| !d.is_empty())?;
    let rest = key.strip_prefix(&request.prefix)?;
    let end = rest.find(delimiter)? + delimiter.len();
    Some(key[..request.prefix.len() + end].to_owned())
}

fn object(key: &str, file: &Summary) -> Object {
    let attributes = Attributes::of(&file.metadata, file.version);
    Object {
        key: Some(key.to_owned()),
        size: Some(i64::try_from(file.size).unwrap_or(i64::MAX)),
        e_tag: Some(attributes.etag()),
        last_modified: Some(time_of(file.version)),
        storage_class: Some(ObjectStorageClass::from_static(
            ObjectStorageClass::STANDARD,
        )),
        ..Object::default()
    }
}
