//! The one macro: a list of choices becomes their enum, their names, and `all()` for tests and docs.

/// Declares a list of choices: an enum that reads `"name"` or `{ kind = "name", … }` and writes the latter.
///
/// Each choice is a struct of settings with a `Default`. A trait after the enum's name is what all of them have in
/// common; `role()` is then the choice as that trait.
#[macro_export]
macro_rules! choice {
    ($(#[$doc:meta])* $choice:ident: $role:ident { $($kind:ident => $name:literal,)* }) => {
        $crate::choice! { $(#[$doc])* $choice { $($kind => $name,)* } }

        impl $choice {
            /// The choice in its role.
            pub(crate) fn role(&self) -> &dyn $role {
                match self { $(Self::$kind(kind) => kind,)* }
            }
        }
    };
    ($(#[$doc:meta])* $choice:ident { $($kind:ident => $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "kind", remote = "Self")]
        pub enum $choice {
            $(
                #[doc = concat!("`", $name, "`; see [`struct@", stringify!($kind), "`].")]
                #[serde(rename = $name)]
                $kind($kind),
            )*
        }

        impl $choice {
            /// The names of all choices, in the order of the list.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// Every choice with its defaults: what tests, docs and comparisons iterate over.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$kind(<$kind>::default()),)*]
            }

            /// The choice's name in settings.
            pub fn name(&self) -> &'static str {
                match self { $(Self::$kind(_) => $name,)* }
            }
        }

        impl serde::Serialize for $choice {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // Not itself: serde's `remote` makes a function of the type by this name.
                Self::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $choice {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::name_or_table(deserializer, |table| Self::deserialize(table))
            }
        }

        impl schemars::JsonSchema for $choice {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($choice).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let choices = [$(
                    $crate::schema::of_choice::<$kind>($name, generator),
                )*];
                $crate::schema::one_of(choices)
            }
        }

        $(
            impl From<$kind> for $choice {
                fn from(kind: $kind) -> Self {
                    Self::$kind(kind)
                }
            }
        )*
    };
}
