//! Tensors that a file may hold twice: the output beside the embeddings that it shares, and the embeddings once more in each
//! stack. A file may hold any of them alone; where it holds two, they must be the same or are two.

use crate::{Error, error::Result, table::Names, tensors::Tensors};

/// Puts a copy in the place of a tensor that a file has by the copy's name only. Where nothing is tied, a bias of the output is
/// the one beside its weights, and the other one is left over.
pub(crate) fn stand_in(names: &Names, tensors: &mut Tensors, tied: bool) -> Result<()> {
    for row in &names.0 {
        let Some(of) = row.copy_of.as_deref() else { continue };
        match (tensors.entries.contains_key(&row.theirs), tensors.entries.contains_key(of)) {
            (true, _) if !tied && of.ends_with(".bias") => move_to(tensors, &row.theirs, of),
            (true, false) => move_to(tensors, &row.theirs, of),
            (true, true) if !same(tensors, &row.theirs, of)? => {
                let expected = format!("those of {of}, which a model here has once");
                return Err(Error::tensor(&row.theirs, "values of its own", expected));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether output and embeddings are two, although the config says that they are one: transformers takes the tensors at their
/// word. An output that stands alone is both.
pub(crate) fn unties(names: &Names, tensors: &mut Tensors) -> Result<bool> {
    let named = |ours: &str| {
        let rows = names.0.iter().filter(|row| row.ours.len() == 1 && row.ours[0] == ours);
        rows.map(|row| row.theirs.clone()).collect::<Vec<_>>()
    };
    let embeddings = named("embedding.weight");
    let there = |name: &String| tensors.entries.contains_key(name);
    let Some(output) = named("output.weight").into_iter().find(there) else { return Ok(false) };
    match embeddings.iter().find(|name| there(name)) {
        Some(embeddings) => Ok(!same(tensors, &output, embeddings)?),
        None => {
            embeddings.iter().take(1).for_each(|name| move_to(tensors, &output, name));
            Ok(false)
        }
    }
}

fn move_to(tensors: &mut Tensors, from: &str, to: &str) {
    if let Some(entry) = tensors.entries.remove(from) {
        tensors.entries.insert(to.into(), entry);
    }
}

fn same(tensors: &Tensors, one: &str, other: &str) -> Result<bool> {
    let (a, b) = (&tensors.entries[one], &tensors.entries[other]);
    if a.shape != b.shape {
        return Ok(false);
    }
    Ok(tensors.read(one)?.values == tensors.read(other)?.values)
}
