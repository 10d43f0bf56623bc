//! Any bytes give an FDT Instance, which encodes to itself, or an error; its names are safe or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use manyflow_object::{fdt::FdtInstance, name};

fuzz_target!(|bytes: &[u8]| {
    let Ok(fdt) = FdtInstance::decode(bytes, 100) else {
        return;
    };
    for file in &fdt.files {
        let _ = file.oti();
        if let Ok(safe) = name::from_location(&file.location) {
            assert_eq!(
                name::from_location(&name::to_location(&safe).unwrap()),
                Ok(safe)
            );
        }
    }
    let again = FdtInstance::decode(&fdt.encode(), 100).unwrap();
    assert_eq!(
        (again.expires, again.complete, again.files.len()),
        (fdt.expires, fdt.complete, fdt.files.len())
    );
});
