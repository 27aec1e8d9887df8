// Boost.Asio's and Boost.Beast's definitions, compiled once.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
