//! Objects in memory: what the others must do, in the fewest words.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Listed, NewObject, Objects, Put, check_name, too_long};
use crate::time::wall;

/// Objects that are gone with the process.
#[derive(Debug, Default)]
pub struct MemoryObjects(Mutex<BTreeMap<String, (Vec<u8>, i64)>>);

impl MemoryObjects {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, (Vec<u8>, i64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, name: &str, read: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        self.objects().get(name).map(|(bytes, _)| read(bytes)).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Objects for MemoryObjects {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<Put> {
        check_name(name)?;
        let mut objects = self.objects();
        if objects.contains_key(name) {
            return Ok(Put::Existed);
        }
        objects.insert(name.to_owned(), (bytes.to_owned(), wall()));
        Ok(Put::Created)
    }

    fn begin(&self) -> io::Result<Box<dyn NewObject + '_>> {
        Ok(Box::new(Gathered { objects: self, bytes: Vec::new() }))
    }

    fn get(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        self.with(name, |bytes| {
            if bytes.len() as u64 > most { Err(too_long(name, most)) } else { Ok(bytes.to_owned()) }
        })?
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.with(name, |bytes| {
            let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            bytes[within(offset)..within(offset.saturating_add(length))].to_owned()
        })
    }

    fn get_end(&self, name: &str, length: u64) -> io::Result<(Vec<u8>, u64)> {
        self.with(name, |bytes| {
            let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
            (bytes[bytes.len() - length..].to_owned(), bytes.len() as u64)
        })
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<Listed>> {
        let objects = self.objects();
        let listed = objects.iter().filter(|(name, _)| name.starts_with(prefix));
        let listed = listed.map(|(name, (bytes, put_at))| Listed {
            name: name.clone(),
            size: bytes.len() as u64,
            put_at: *put_at,
        });
        Ok(listed.collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects().remove(name);
        Ok(())
    }

    fn clear(&self, _age: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// An object that is put as a whole at the end.
struct Gathered<'a> {
    objects: &'a dyn Objects,
    bytes: Vec<u8>,
}

impl NewObject for Gathered<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, name: &str) -> io::Result<Put> {
        self.objects.put(name, &self.bytes)
    }
}
