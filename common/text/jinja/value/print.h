// str() and repr() of values.
#pragma once

#include <string>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

// What {{ value }} prints; undefined prints as nothing.
std::string ToText(const Value& value);

// How a value looks inside a printed list or mapping: strings quoted and escaped.
std::string Repr(const Value& value);

// repr(float): the shortest digits that give the number back; exponents as 1e-05, 1e+16.
std::string FloatText(double number);

}  // namespace tandem::jinja
