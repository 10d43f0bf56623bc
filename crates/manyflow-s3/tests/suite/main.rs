//! The S3 surface of a store in this process, and a plain HTTP client that signs its requests.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod client;

use std::time::Duration;

use client::{Answer, Client, KEY, SECRET};
use manyflow_ensembles::http::wire::HEADERS_MAX;
use manyflow_ensembles::store::{MemoryService, StoreClient};
use manyflow_s3::{Credentials, S3Surface, serve};
use manyflow_store::{Member, MemberName, MemoryShelf, StoreConfig};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const MIB: usize = 1 << 20;

/// A surface with a client.
struct Lab {
    client: Client,
    server: JoinHandle<std::io::Result<()>>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Lab {
    /// Starts a surface with an empty bucket `box`.
    async fn start() -> Lab {
        let member = |number| {
            let name = MemberName::new(&format!("m{number}")).unwrap();
            Member::new(name, MemoryShelf::default())
        };
        let service = MemoryService::new((0..4).map(member));
        let patience = Duration::from_secs(30);
        let store = StoreClient::new(service, StoreConfig::default(), patience);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(listener.local_addr().unwrap());
        let credentials = Credentials::parse(&format!("{KEY} {SECRET}")).unwrap();
        let server = tokio::spawn(serve(listener, S3Surface::new(store), credentials));
        let lab = Lab { client, server };
        assert_eq!(lab.put("/box", b"").await.status, 200);
        lab
    }

    async fn put(&self, path: &str, body: &[u8]) -> Answer {
        self.client.send("PUT", path, "", &[], body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.client.send("GET", path, "", &[], b"").await
    }

    /// Returns the texts in these elements of a listing.
    async fn list(&self, query: &str, element: &str) -> Vec<String> {
        let listed = self.client.send("GET", "/box", query, &[], b"").await;
        assert_eq!(listed.status, 200, "{}", listed.text());
        elements(&listed.text(), element)
    }
}

/// Returns the texts of all elements of this name, which have none inside.
fn elements(xml: &str, name: &str) -> Vec<String> {
    let open = format!("<{name}>");
    let parts = xml.split(&open).skip(1);
    parts
        .map(|part| part.split('<').next().unwrap().to_owned())
        .collect()
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251) as u8).collect()
}

#[tokio::test]
async fn an_object_is_put_read_in_parts_and_deleted() {
    let lab = Lab::start().await;
    let body = bytes(3 * MIB + 5);
    let headers = [("content-type", "image/x"), ("x-amz-meta-mtime", "1.25")];
    let put = lab
        .client
        .send("PUT", "/box/dir/object", "", &headers, &body)
        .await;
    assert_eq!(put.status, 200, "{}", put.text());
    let etag = put.header("etag");
    assert_eq!(etag.len(), 34, "an MD5 digest in quotes: {etag}");
    let read = lab.get("/box/dir/object").await;
    assert_eq!((read.status, read.body == body), (200, true));
    assert_eq!(read.header("content-type"), "image/x");
    assert_eq!(read.header("x-amz-meta-mtime"), "1.25");
    assert_eq!(read.header("etag"), etag);
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=1048570-2097160", 1_048_570..2_097_161),
        ("bytes=3145728-", 3_145_728..body.len()),
        ("bytes=-3", body.len() - 3..body.len()),
    ] {
        let read = lab
            .client
            .send("GET", "/box/dir/object", "", &[("range", range)], b"")
            .await;
        assert_eq!(
            (read.status, read.body[..] == body[part.clone()]),
            (206, true),
            "{range}"
        );
        let wanted = format!("bytes {}-{}/{}", part.start, part.end - 1, body.len());
        assert_eq!(read.header("content-range"), wanted);
    }
    let beyond = [("range", "bytes=9999999-")];
    let beyond = lab
        .client
        .send("GET", "/box/dir/object", "", &beyond, b"")
        .await;
    assert_eq!(beyond.status, 416);
    let head = lab
        .client
        .send("HEAD", "/box/dir/object", "", &[], b"")
        .await;
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, body.len().to_string())
    );
    for _ in 0..2 {
        let deleted = lab
            .client
            .send("DELETE", "/box/dir/object", "", &[], b"")
            .await;
        assert_eq!(deleted.status, 204);
    }
    let missing = lab.get("/box/dir/object").await;
    assert_eq!(
        (missing.status, elements(&missing.text(), "Code")),
        (404, vec!["NoSuchKey".to_owned()])
    );
}

#[tokio::test]
async fn conditions_on_the_present_object_are_checked() {
    let lab = Lab::start().await;
    let put = |condition: (&'static str, String), body: &'static [u8]| {
        let client = &lab.client;
        async move {
            let headers = [(condition.0, condition.1.as_str())];
            client.send("PUT", "/box/object", "", &headers, body).await
        }
    };
    let first = put(("if-none-match", "*".to_owned()), b"one").await;
    assert_eq!(first.status, 200);
    assert_eq!(
        put(("if-none-match", "*".to_owned()), b"two").await.status,
        412
    );
    let etag = first.header("etag");
    assert_eq!(
        put(("if-match", "\"0\"".to_owned()), b"two").await.status,
        412
    );
    assert_eq!(put(("if-match", etag.clone()), b"two").await.status, 200);
    assert_eq!(put(("if-match", etag.clone()), b"three").await.status, 412);
    let read = lab
        .client
        .send("GET", "/box/object", "", &[("if-match", &etag)], b"")
        .await;
    assert_eq!(read.status, 412);
    assert_eq!(lab.get("/box/object").await.body, b"two");
}

#[tokio::test]
async fn listings_have_pages_prefixes_and_common_prefixes() {
    let lab = Lab::start().await;
    for key in ["a", "d/1", "d/2", "d/e/3", "f/4", "z"] {
        assert_eq!(lab.put(&format!("/box/{key}"), b"x").await.status, 200);
    }
    let all = ["a", "d/1", "d/2", "d/e/3", "f/4", "z"];
    assert_eq!(lab.list("list-type=2", "Key").await, all);
    assert_eq!(lab.list("", "Key").await, all);
    assert_eq!(
        lab.list("list-type=2&prefix=d%2F", "Key").await,
        ["d/1", "d/2", "d/e/3"]
    );
    assert_eq!(
        lab.list("delimiter=%2F&list-type=2", "Key").await,
        ["a", "z"]
    );
    let prefixes = lab.list("delimiter=%2F&list-type=2", "Prefix").await;
    assert!(
        prefixes.ends_with(&["d/".to_owned(), "f/".to_owned()]),
        "{prefixes:?}"
    );
    let below = lab
        .list("delimiter=%2F&list-type=2&prefix=d%2F", "Key")
        .await;
    assert_eq!(below, ["d/1", "d/2"]);
    // Pages of two entries, with and without a delimiter.
    for (delimiter, wanted) in [("", 6), ("delimiter=%2F&", 4)] {
        let (mut token, mut count) = (String::new(), 0);
        for page in 0.. {
            assert!(page < 5, "the listing does not end");
            let query = format!("{token}{delimiter}list-type=2&max-keys=2");
            let listed = lab
                .client
                .send("GET", "/box", &query, &[], b"")
                .await
                .text();
            count += elements(&listed, "Key").len() + elements(&listed, "CommonPrefixes").len();
            match elements(&listed, "NextContinuationToken").first() {
                Some(next) => token = format!("continuation-token={}&", next.replace('/', "%2F")),
                None => break,
            }
        }
        assert_eq!(count, wanted, "{delimiter}");
    }
}

#[tokio::test]
async fn a_listing_of_a_negative_number_of_keys_is_refused() {
    let lab = Lab::start().await;
    for query in ["max-keys=-1", "list-type=2&max-keys=-1"] {
        let refused = lab.client.send("GET", "/box", query, &[], b"").await;
        assert_eq!(refused.status, 400, "{query}");
        assert_eq!(elements(&refused.text(), "Code"), ["InvalidArgument"]);
    }
}

#[tokio::test]
async fn a_multipart_upload_becomes_one_object() {
    let lab = Lab::start().await;
    for (key, lengths) in [
        ("aligned", [5 * MIB, 5 * MIB, 77]),
        ("odd", [MIB + 1, 3, MIB]),
    ] {
        let path = format!("/box/{key}");
        let begun = lab
            .client
            .send("POST", &path, "uploads=", &[], b"")
            .await
            .text();
        let id = elements(&begun, "UploadId").remove(0);
        let mut xml = "<CompleteMultipartUpload>".to_owned();
        let mut whole = Vec::new();
        for (number, length) in (1..).zip(lengths) {
            let body = bytes(length);
            let query = format!("partNumber={number}&uploadId={id}");
            let part = lab.client.send("PUT", &path, &query, &[], &body).await;
            assert_eq!(part.status, 200, "{}", part.text());
            let etag = part.header("etag");
            xml += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
            whole.extend(body);
        }
        xml += "</CompleteMultipartUpload>";
        assert_eq!(lab.get(&path).await.status, 404, "it is not complete");
        let query = format!("uploadId={id}");
        let done = lab
            .client
            .send("POST", &path, &query, &[], xml.as_bytes())
            .await;
        assert_eq!(done.status, 200, "{}", done.text());
        let read = lab.get(&path).await;
        assert!(read.body == whole, "{key}");
        assert!(
            read.header("etag").ends_with("-3\""),
            "{}",
            read.header("etag")
        );
        let again = lab
            .client
            .send("POST", &path, &query, &[], xml.as_bytes())
            .await;
        assert_eq!(again.status, 404, "the upload is over");
    }
    let begun = lab
        .client
        .send("POST", "/box/given-up", "uploads=", &[], b"")
        .await
        .text();
    let query = format!("uploadId={}", elements(&begun, "UploadId").remove(0));
    assert_eq!(
        lab.client
            .send("DELETE", "/box/given-up", &query, &[], b"")
            .await
            .status,
        204
    );
    assert_eq!(lab.list("", "Key").await, ["aligned", "odd"]);
}

#[tokio::test]
async fn a_copy_has_the_bytes_and_the_metadata_of_its_source() {
    let lab = Lab::start().await;
    let body = bytes(2 * MIB);
    let headers = [("x-amz-meta-k", "v")];
    lab.client
        .send("PUT", "/box/source", "", &headers, &body)
        .await;
    let copied = [("x-amz-copy-source", "/box/source")];
    let copied = lab.client.send("PUT", "/box/copy", "", &copied, b"").await;
    assert_eq!(copied.status, 200, "{}", copied.text());
    lab.client.send("DELETE", "/box/source", "", &[], b"").await;
    let read = lab.get("/box/copy").await;
    assert!(read.body == body);
    assert_eq!(read.header("x-amz-meta-k"), "v");
}

#[tokio::test]
async fn buckets_are_made_listed_and_removed_when_they_are_empty() {
    let lab = Lab::start().await;
    assert_eq!(lab.put("/other", b"").await.status, 200);
    assert_eq!(lab.put("/other/object", b"x").await.status, 200);
    let listed = lab.get("/").await.text();
    assert_eq!(elements(&listed, "Name"), ["box", "other"]);
    let full = lab.client.send("DELETE", "/other", "", &[], b"").await;
    assert_eq!(full.status, 409, "{}", full.text());
    let xml =
        b"<Delete><Object><Key>object</Key></Object><Object><Key>none</Key></Object></Delete>";
    let md5 = [("content-md5", client::md5(xml))];
    let md5 = md5.each_ref().map(|(name, value)| (*name, value.as_str()));
    let deleted = lab
        .client
        .send("POST", "/other", "delete=", &md5, xml)
        .await;
    assert_eq!(
        elements(&deleted.text(), "Key"),
        ["object", "none"],
        "{}",
        deleted.text()
    );
    assert_eq!(
        lab.client
            .send("DELETE", "/other", "", &[], b"")
            .await
            .status,
        204
    );
    assert_eq!(
        lab.client.send("HEAD", "/other", "", &[], b"").await.status,
        404
    );
    assert_eq!(lab.put("/other/object", b"x").await.status, 404);
}

#[tokio::test]
async fn requests_without_a_valid_signature_are_refused() {
    let lab = Lab::start().await;
    lab.put("/box/object", b"secret").await;
    let stranger = lab.client.with_secret("another-secret-of-16-bytes");
    let forged = stranger.send("GET", "/box/object", "", &[], b"").await;
    assert_eq!(forged.status, 403, "{}", forged.text());
    let anonymous = lab.client.send_unsigned("GET", "/box/object").await;
    assert_eq!(anonymous.status, 403, "{}", anonymous.text());
    let damaged = [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
    let damaged = lab
        .client
        .send("PUT", "/box/object", "", &damaged, b"changed")
        .await;
    assert_eq!(damaged.status, 400, "{}", damaged.text());
    assert_eq!(lab.get("/box/object").await.body, b"secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_end_their_direction_behind_a_request_are_answered() {
    let lab = Lab::start().await;
    let client = lab.client.half_closed();
    let body = vec![7; 3 * MIB];
    let put = client.send("PUT", "/box/long", "", &[], &body).await;
    assert_eq!(put.status, 200);
    let got = client.send("GET", "/box/long", "", &[], b"").await;
    assert_eq!(got.status, 200);
    assert!(got.body == body);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_have_at_most_as_many_headers_as_those_of_the_gateway() {
    let lab = Lab::start().await;
    // The client adds six of its own.
    for (others, expected) in [(HEADERS_MAX - 6, 200), (HEADERS_MAX - 5, 431)] {
        let names: Vec<_> = (0..others).map(|n| format!("x-amz-meta-n{n:03}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (&name[..], "v")).collect();
        let put = lab.client.send("PUT", "/box/many", "", &headers, b"x");
        assert_eq!(put.await.status, expected, "{others} headers");
    }
}
