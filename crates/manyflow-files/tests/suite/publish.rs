//! Publishing a session description over HTTP and loading it, on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use manyflow_files::load::load;
use manyflow_files::sdp::SessionDescription;
use manyflow_net::description::load::{LoadError, Trust, fetch};
use manyflow_net::description::{DESCRIPTION_BYTES_MAX, DescriptionError};
use manyflow_net::publish::{DESCRIPTION_PATH, Publisher};
use manyflow_net::reserved::ReservedAddress;
use manyflow_testing::LIMIT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const DESCRIPTION: &str = "v=0\r
o=- 7 1 IN IP4 192.0.2.1\r
s=nightly build\r
t=0 0\r
a=source-filter: incl IN IP4 * 192.0.2.1\r
a=flute-tsi:7\r
a=flute-ch:46\r
a=FEC-declaration:0 encoding-id=6\r
a=webrc:N=15;Q=30;TSD=10;BCR=1;P=0.75;LENP=1400;SR=2000000;constant=1;CCI=short;EL=0.5\r
m=application 5000 FLUTE/UDP *\r
c=IN IP4 232.1.2.0/1/46\r
a=FEC:0\r
";

async fn publisher() -> Publisher {
    publisher_of("127.0.0.1:0", &[(DESCRIPTION_PATH, DESCRIPTION)]).await
}

/// Starts a server of descriptions, each with its path.
async fn publisher_of(address: &str, descriptions: &[(&str, &str)]) -> Publisher {
    let descriptions = descriptions.iter();
    let descriptions = descriptions.map(|(path, text)| (path.to_string(), text.to_string()));
    Publisher::serve(address, descriptions.collect(), None)
        .await
        .unwrap()
}

fn url(address: SocketAddr, path: &str) -> String {
    format!("http://{address}{path}")
}

/// Returns the server's whole answer to these bytes.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

/// Starts a server that reads one request and answers with these bytes.
async fn server_that_answers(response: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        // The client may close the connection before the whole answer is written.
        let _ = stream.write_all(&response).await;
    });
    address
}

fn http_response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[tokio::test]
async fn a_published_description_is_loaded_by_its_url() {
    let publisher = publisher().await;
    let url = url(publisher.local_address(), "/session.sdp");
    assert_eq!(fetch(&url, None).await.unwrap(), DESCRIPTION);
    assert_eq!(
        load(&url, &Trust::default()).await.unwrap().description,
        SessionDescription::parse(DESCRIPTION).unwrap()
    );
}

#[tokio::test]
async fn a_description_is_published_over_ipv6() {
    let publisher = publisher_of("[::1]:0", &[(DESCRIPTION_PATH, DESCRIPTION)]).await;
    assert_eq!(
        fetch(&url(publisher.local_address(), "/session.sdp"), None)
            .await
            .unwrap(),
        DESCRIPTION
    );
}

#[tokio::test]
async fn several_descriptions_have_their_paths_and_are_listed() {
    let other = DESCRIPTION.replace("nightly", "weekly");
    let descriptions = [("/nightly.sdp", DESCRIPTION), ("/weekly.sdp", &other)];
    let publisher = publisher_of("127.0.0.1:0", &descriptions).await;
    let address = publisher.local_address();
    for (path, text) in descriptions {
        let url = publisher.url(Ipv4Addr::UNSPECIFIED.into(), path);
        assert_eq!(url, format!("http://{address}{path}"));
        assert_eq!(fetch(&url, None).await.unwrap(), text);
    }
    let list = exchange(address, "GET / HTTP/1.1\r\nHost: builds:80\r\n\r\n").await;
    for (path, _) in descriptions {
        let command = format!("    manyflow recv http://builds:80{path}\n");
        assert!(list.contains(&command), "{list}");
    }
    let error = fetch(&url(address, DESCRIPTION_PATH), None).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("404") && error.contains("lists"), "{error}");
}

#[tokio::test]
async fn a_url_names_the_given_host_only_if_the_server_is_on_all_addresses() {
    let host = Ipv4Addr::new(192, 0, 2, 1).into();
    let publisher = publisher_of("0.0.0.0:0", &[]).await;
    let port = publisher.local_address().port();
    assert_eq!(
        publisher.url(host, "/a"),
        format!("http://192.0.2.1:{port}/a")
    );
}

#[tokio::test]
async fn a_path_is_loaded_from_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.sdp");
    std::fs::write(&path, DESCRIPTION).unwrap();
    let description = load(path.to_str().unwrap(), &Trust::default())
        .await
        .unwrap()
        .description;
    assert_eq!(description, SessionDescription::parse(DESCRIPTION).unwrap());
}

#[tokio::test]
async fn a_file_that_is_missing_or_too_long_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("session.sdp");
    let path = path.to_str().unwrap();
    let error = load(path, &Trust::default()).await.unwrap_err();
    assert!(error.to_string().contains(path), "{error}");
    std::fs::write(path, "x".repeat(DESCRIPTION_BYTES_MAX + 1)).unwrap();
    let error = load(path, &Trust::default()).await.unwrap_err();
    let too_long = matches!(error, LoadError::Description(DescriptionError::TooLong));
    assert!(too_long, "{error}");
}

#[tokio::test]
async fn head_describes_the_file_without_sending_it() {
    let publisher = publisher().await;
    let response = exchange(
        publisher.local_address(),
        "HEAD /session.sdp HTTP/1.1\r\nHost: a\r\n\r\n",
    )
    .await;
    let head = response.to_lowercase();
    assert!(head.starts_with("http/1.1 200"), "{response}");
    assert!(
        head.contains("content-type: application/sdp\r\n"),
        "{response}"
    );
    assert!(
        head.contains(&format!("content-length: {}\r\n", DESCRIPTION.len())),
        "{response}"
    );
    assert!(response.ends_with("\r\n\r\n"), "{response}");
}

#[tokio::test]
async fn the_root_tells_how_to_receive() {
    let publisher = publisher().await;
    let response = exchange(
        publisher.local_address(),
        "GET / HTTP/1.1\r\nHost: build.example:8080\r\n\r\n",
    )
    .await;
    assert!(
        response.contains("manyflow recv http://build.example:8080/session.sdp"),
        "{response}"
    );
    assert!(
        response.to_lowercase().contains("content-type: text/plain"),
        "{response}"
    );
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let publisher = publisher().await;
    let address = publisher.local_address();
    let response = exchange(
        address,
        "POST /session.sdp HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert!(response.starts_with("HTTP/1.1 405"), "{response}");
    let error = load(&url(address, "/other"), &Trust::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, LoadError::Status { status, .. } if status == 404),
        "{error}"
    );
    assert!(error.to_string().contains("/session.sdp"), "{error}");
}

#[tokio::test]
async fn a_dropped_publisher_refuses_connections() {
    // Nobody else listens at the address when the publisher no longer does.
    let address = ReservedAddress::new().unwrap();
    let descriptions = [(DESCRIPTION_PATH, DESCRIPTION)];
    let publisher = publisher_of(&address.get().to_string(), &descriptions).await;
    let url = url(publisher.local_address(), "/session.sdp");
    fetch(&url, None).await.unwrap();
    drop(publisher);
    // The aborted task ends when it next runs, so a last connection may be accepted and then
    // closed.
    let mut error = fetch(&url, None).await.unwrap_err();
    let start = Instant::now();
    while !matches!(error, LoadError::Unreachable { .. }) {
        assert!(start.elapsed() < LIMIT, "{error}");
        tokio::task::yield_now().await;
        error = fetch(&url, None).await.unwrap_err();
    }
    assert!(
        error.to_string().contains("does the sender run there"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_no_description_is_refused() {
    let address = server_that_answers(http_response("200 OK", "<html></html>")).await;
    let error = load(&url(address, "/"), &Trust::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, LoadError::Description(DescriptionError::NotSdp(_))),
        "{error}"
    );

    let address = server_that_answers(b"220 mail.example ready\r\n".to_vec()).await;
    let error = load(&url(address, "/"), &Trust::default())
        .await
        .unwrap_err();
    assert!(matches!(error, LoadError::Broken { .. }), "{error}");
}

#[tokio::test]
async fn a_redirect_is_reported_and_not_followed() {
    let response =
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
    let address = server_that_answers(response.to_vec()).await;
    let error = load(&url(address, "/session.sdp"), &Trust::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, LoadError::Status { status, .. } if status == 302),
        "{error}"
    );
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit() {
    let body = "x".repeat(DESCRIPTION_BYTES_MAX);
    let address = server_that_answers(http_response("200 OK", &body)).await;
    assert_eq!(fetch(&url(address, "/"), None).await.unwrap(), body);

    let address = server_that_answers(http_response("200 OK", &(body + "x"))).await;
    let error = fetch(&url(address, "/"), None).await.unwrap_err();
    assert!(
        matches!(error, LoadError::Description(DescriptionError::TooLong)),
        "{error}"
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let address =
        server_that_answers(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nv=0".to_vec()).await;
    let error = fetch(&url(address, "/"), None).await.unwrap_err();
    assert!(matches!(error, LoadError::Cut { .. }), "{error}");
}

/// The runtime's time is paused and jumps from timer to timer, so the test does not wait.
#[tokio::test(start_paused = true)]
async fn a_silent_server_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = fetch(&url(listener.local_addr().unwrap(), "/"), None)
        .await
        .unwrap_err();
    assert!(matches!(error, LoadError::TimedOut(_)), "{error}");
}

#[tokio::test]
async fn other_schemes_are_refused() {
    for url in ["ftp://127.0.0.1/", "http://", "http://a b/"] {
        let error = load(url, &Trust::default()).await.unwrap_err();
        assert!(matches!(error, LoadError::NotHttp(_)), "{url}: {error}");
    }
}
