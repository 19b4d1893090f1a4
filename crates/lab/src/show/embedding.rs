//! `show position` for what is added to embeddings: a vector for each position.

use std::sync::Arc;

use burn::tensor::Tensor;
use whatwhere_attention::{
    CallView,
    call::{Call, Score},
    position::PositionLayer,
};
use whatwhere_kernels::attention::{Shape, pattern::Full, reference};

use super::{
    Picture,
    position::{Drawn, WIDTH, floats, kernels},
};
use crate::{
    Error,
    chart::{Heat, Series},
};

/// Positions whose vectors are drawn over the dimensions: two neighbours and a far one.
const POSITIONS: [usize; 3] = [3, 4, 500];

impl Drawn {
    /// Pictures of what is added to embeddings.
    pub(super) fn embedding(&self) -> Result<Vec<Picture>, Error> {
        let table = self.table()?;
        let count = table.dims()[1];
        let values = floats(table.clone());
        let value = |position: usize, channel: usize| f64::from(values[position * WIDTH + channel]);
        let positions = POSITIONS.iter().filter(|position| **position < count);
        let over_dimensions = positions.map(|position| Series {
            name: format!("position {position}"),
            points: (0..WIDTH).step_by(2).map(|c| (c as f64, value(*position, c))).collect(),
            ..Default::default()
        });
        let waves = [0, WIDTH / 8, WIDTH / 4, WIDTH / 2, WIDTH - 2].map(|channel| Series {
            name: format!("dimension {channel}"),
            points: (0..count.min(self.length + 1))
                .map(|position| (position as f64, value(position, channel)))
                .collect(),
            ..Default::default()
        });
        let shown = count.min(128);
        let map = Heat {
            title: format!("{}: what is added to embeddings", self.name),
            x: "dimension".into(),
            y: "position".into(),
            columns: (0..WIDTH).map(|c| c.to_string()).collect(),
            rows: (0..shown).map(|position| position.to_string()).collect(),
            values: (0..shown).map(|p| (0..WIDTH).map(|c| value(p, c)).collect()).collect(),
            diverging: true,
            ..Default::default()
        };
        let similarity = self.similarity_of_embeddings(table)?;
        let on_grid = self.map_on_grid(&similarity[0].points);
        let pictures = vec![
            self.lines(
                "dimensions",
                "values over the dimensions",
                ("dimension", "value"),
                over_dimensions.collect(),
                "Every second dimension; sinusoids have a sine and a cosine side by side.",
            ),
            self.lines(
                "waves",
                "values along the positions",
                ("position", "value"),
                waves.into(),
                "One curve for each of some dimensions: the first change fast, the last hardly.",
            ),
            Picture::new(format!("{}-map", self.name), map.svg(), ""),
            self.lines(
                "similarity",
                "similarity against distance",
                ("distance (key − query)", "cosine of the two vectors"),
                similarity,
                "How alike the vectors of two positions are, by their distance.",
            ),
        ];
        Ok(pictures.into_iter().chain(on_grid).collect())
    }

    /// What is added to an embedding at each position.
    pub(super) fn table(&self) -> Result<Tensor<3>, Error> {
        let most = self.position.limit().unwrap_or(usize::MAX);
        let count = (2 * self.length + 1).max(POSITIONS[2] + 1).min(most);
        let zeros = Tensor::zeros([1, count, WIDTH], &self.device);
        Ok(self.layer.embed(zeros, 0)?) // [1, count, width]
    }

    pub(super) fn similarity_of_embeddings(&self, table: Tensor<3>) -> Result<Vec<Series>, Error> {
        let count = table.dims()[1].min(2 * self.length + 1);
        let middle = count / 2;
        let keys = table.narrow(1, 0, count).unsqueeze_dim::<4>(1); // [1, 1, count, width]
        let query = keys.clone().narrow(2, middle, 1);
        let shape = Shape { queries: 1, ..Shape::square(1, 1, count, WIDTH) };
        let mut call = Call::new(shape, Arc::new(Full));
        call.score = Score::Cosine { scale: 1.0 };
        let look = CallView::new(&call, query, keys.clone(), keys);
        let scores = reference::scores(&look.call(), &look.inputs()).map_err(kernels)?;
        let points = scores.iter().enumerate().map(|(key, s)| (key as f64 - middle as f64, *s));
        Ok(vec![Series { points: points.collect(), ..Default::default() }])
    }
}
