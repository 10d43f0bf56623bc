//! Any input decodes to an error, or to an FDT Instance that survives encoding and decoding. Its
//! file names are safe or refused.
#![cfg_attr(fuzzing, no_main)]

use manyflow_object::{fdt::FdtInstance, name};

manyflow_fuzz::target!(|bytes: &[u8]| {
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
