//! No bytes make the check of requests' framing panic, and their cuts change nothing.
#![cfg_attr(fuzzing, no_main)]

use manyflow_ensembles::http::framing::Scanner;

/// Beginnings behind which any bytes are a head, a body, or chunks.
const BEFORE: [&str; 4] = [
    "",
    "GET / HTTP/1.1\r\nHost: a\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
];

manyflow_fuzz::target!(|bytes: &[u8]| {
    for before in BEFORE {
        let bytes = [before.as_bytes(), bytes].concat();
        let whole = Scanner::default().handle_bytes(&bytes);
        let mut scanner = Scanner::default();
        let single = (0..).zip(bytes.chunks(1)).find_map(|(at, byte)| {
            let refused = scanner.handle_bytes(byte).err();
            refused.map(|(_, refusal)| (at, refusal))
        });
        assert_eq!(whole.err(), single);
    }
});
