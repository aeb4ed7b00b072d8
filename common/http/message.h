// A request and an answer of HTTP, as handlers see them.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // without the query, percent-decoded: "/api/v1/runs"
  std::multimap<std::string, std::string> query;  // percent-decoded
  std::map<std::string, std::string> headers;     // names in lower case; repeated ones with commas
  std::string body;

  // The first value of a parameter; null: it is not there.
  const std::string* Parameter(const std::string& name) const {
    const auto found = query.lower_bound(name);
    return found == query.end() || found->first != name ? nullptr : &found->second;
  }
  // "": the request has no such header.
  std::string Header(const std::string& lower_case_name) const {
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? "" : found->second;
  }
};

struct HttpResponse {
  int status = 200;
  std::string content_type;
  std::string body;
  bool is_gzip = false;  // `body` is compressed already
  std::vector<std::pair<std::string, std::string>> headers;
};

}  // namespace tandem
