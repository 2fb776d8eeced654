//! The languages of models that write down what they hear, by their codes.

/// The languages of Whisper whose word error rate is below one half.
pub(super) const SUPPORTED: [&str; 57] = [
    "af", "ar", "hy", "az", "be", "bs", "bg", "ca", "zh", "hr", "cs", "da", "nl", "en", "et", "fi",
    "fr", "gl", "de", "el", "he", "hi", "hu", "is", "id", "it", "ja", "kn", "kk", "ko", "lv", "lt",
    "mk", "ms", "mr", "mi", "ne", "no", "fa", "pl", "pt", "ro", "ru", "sr", "sk", "sl", "es", "sw",
    "sv", "tl", "ta", "th", "tr", "uk", "ur", "vi", "cy",
];

/// Languages that the model knows less well. They are served if a client asks for them.
pub(super) const FURTHER: [&str; 43] = [
    "la", "ml", "te", "bn", "br", "eu", "mn", "sq", "gu", "pa", "si", "km", "sn", "yo", "so", "oc",
    "ka", "tg", "sd", "am", "yi", "lo", "uz", "fo", "ht", "ps", "tk", "nn", "mt", "sa", "lb", "my",
    "bo", "mg", "as", "tt", "haw", "ln", "ha", "ba", "jw", "su", "yue",
];

/// The languages that Voxtral was trained for. As in vLLM, a client may name those of Whisper, too.
pub(super) const VOXTRAL: [&str; 9] = ["ar", "nl", "en", "fr", "de", "hi", "it", "pt", "es"];
