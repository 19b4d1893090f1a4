//! The arrays of a call besides q, k and v, by index, with their shapes checked where they are used.

use numpy::{PyReadonlyArrayDyn, PyUntypedArrayMethods};
use whatwhere_settings::Refuses;

use crate::{Error, settings::Array};

/// Borrowed arrays, contiguous.
pub(crate) struct Arrays<'a> {
    all: Vec<(&'a [f32], &'a [usize])>,
}

impl<'a> Arrays<'a> {
    pub(crate) fn new(arrays: &'a [PyReadonlyArrayDyn<'_, f32>]) -> Result<Self, Error> {
        let all = arrays.iter().map(|array| {
            let values =
                array.as_slice().map_err(|_| Error::unreadable("an array is not contiguous"))?;
            Ok((values, array.shape()))
        });
        Ok(Self { all: all.collect::<Result<_, Error>>()? })
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// An array by its index.
    pub(crate) fn at(&self, index: usize) -> Result<(&'a [f32], &'a [usize]), Error> {
        let missing = || Error::unreadable(format!("array {index} was not handed in"));
        self.all.get(index).copied().ok_or_else(missing)
    }

    /// An array that a setting needs.
    pub(crate) fn get(
        &self,
        setting: &str,
        array: Option<Array>,
        expected: &str,
    ) -> Result<(&'a [f32], &'a [usize]), Error> {
        match array {
            Some(array) => self.at(array.index),
            None => Err(Error::setting(
                setting.to_owned(),
                "none",
                format!("hand in an array, {expected}"),
            )),
        }
    }

    /// An array that a setting needs, of one shape only: a transposed table has as many values.
    pub(crate) fn shaped(
        &self,
        setting: &str,
        array: Option<Array>,
        sizes: &[usize],
        names: &str,
    ) -> Result<&'a [f32], Error> {
        let (values, found) = self.get(setting, array, names)?;
        if found == sizes {
            return Ok(values);
        }
        let expected = format!("{names} = {sizes:?}");
        Err(Error::Shape { what: setting.into(), found: found.to_vec(), expected })
    }
}
