# A server without files, some load, a clean end.
set -e
redis-server --port "$FIELD_PORT" --bind 127.0.0.1 --save '' --appendonly no --loglevel warning >server.log 2>&1 &
server=$!
tries=0
until redis-cli -p "$FIELD_PORT" ping >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 200 ]
    sleep 0.05
done
redis-benchmark -p "$FIELD_PORT" -q -n 15000 -c 20 -t set,get,lpush,sadd >load.log 2>&1
redis-benchmark -p "$FIELD_PORT" -q -n 40000 -c 20 -P 16 -t incr,zadd,lrange_100 >>load.log 2>&1
redis-cli -p "$FIELD_PORT" get counter:__rand_int__
redis-cli -p "$FIELD_PORT" shutdown nosave || true
wait $server
echo "server ended with $?"
