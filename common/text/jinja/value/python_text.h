// Python's str operations on UTF-8 text, within the allowance of the rendering: what they give once
// it is spent is cut short.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::jinja {

// str.isspace of one character: White_Space and the separators U+001C to U+001F.
bool IsPythonSpace(char32_t c);

enum class Side { kLeft, kRight, kBoth };
// `characters`: the set to remove, white space if absent.
std::string Strip(std::string_view text, Side side, const std::optional<std::string>& characters);

// text.find(part, pos) in time that grows with the text alone, and text.rfind(part, pos).
size_t FindText(std::string_view text, std::string_view part, size_t pos = 0);
size_t FindLastText(std::string_view text,
                    std::string_view part,
                    size_t pos = std::string_view::npos);

// `limit` < 0: no limit. Without separator: at runs of white space, no empty parts.
std::vector<std::string> Split(std::string_view text, int64_t limit);
std::vector<std::string> Split(std::string_view text, std::string_view separator, int64_t limit);
std::vector<std::string> SplitFromRight(std::string_view text, int64_t limit);
std::vector<std::string> SplitFromRight(std::string_view text,
                                        std::string_view separator,
                                        int64_t limit);
std::vector<std::string> SplitLines(std::string_view text, bool keep_ends);

// `limit` < 0: all. An empty `from` matches between all characters.
std::string Replace(std::string_view text,
                    std::string_view from,
                    std::string_view to,
                    int64_t limit);

// Non-overlapping occurrences.
int64_t Count(std::string_view text, std::string_view part);

// Pads to `width` with a fill character: left, right, or both sides as str.center does.
std::string Justify(std::string_view text, int64_t width, std::string_view fill, Side text_side);

}  // namespace tandem::jinja
