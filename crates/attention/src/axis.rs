//! One list per axis: its choices with their names in settings and, with burn, what they are at work.

/// Declares an axis whose choices have parameters: the enum of their settings ([`whatwhere_settings::choice!`]) and that of
/// their burn modules, which `new` of each makes from its settings.
macro_rules! axis {
    (
        $(#[$doc:meta])*
        $axis:ident: $settings:ident, $module:ident: $layer:ident {
            $($file:ident::{$choice:ident, $choice_layer:ident} => $name:literal,)*
        }
    ) => {
        whatwhere_settings::choice! {
            $(#[$doc])*
            $axis: $settings { $($choice => $name,)* }
        }

        $(
            pub use $file::$choice;
            #[cfg(feature = "burn")]
            pub use $file::$choice_layer;
        )*

        #[doc = concat!("A [`", stringify!($axis), "`] with its parameters.")]
        #[cfg(feature = "burn")]
        #[derive(burn::module::Module, Debug)]
        pub enum $module {
            $(
                #[doc = concat!("`", $name, "`.")]
                $choice($choice_layer),
            )*
        }

        #[cfg(feature = "burn")]
        impl $module {
            fn role(&self) -> &dyn $layer {
                match self { $(Self::$choice(layer) => layer,)* }
            }
        }

        #[cfg(feature = "burn")]
        impl $axis {
            /// The choice with fresh parameters.
            fn module(&self, heads: &$crate::Heads, device: &burn::tensor::Device) -> $module {
                match self {
                    $(Self::$choice(settings) => {
                        $module::$choice($choice_layer::new(settings, heads, device))
                    })*
                }
            }
        }
    };
}

pub(crate) use axis;
