# A server, some load, a clean end.
set -e
memcached -u root -l 127.0.0.1 -p "$FIELD_PORT" -t 2 >server.log 2>&1 &
server=$!
tries=0
until memcping --servers="127.0.0.1:$FIELD_PORT" >load.log 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 200 ]
    sleep 0.05
done
memcslap --servers="127.0.0.1:$FIELD_PORT" --concurrency=4 --execute-number=5000 --test=set >load.log 2>&1
memcslap --servers="127.0.0.1:$FIELD_PORT" --concurrency=4 --execute-number=5000 --test=get >>load.log 2>&1
kill -TERM $server
wait $server
echo "server ended with $?"
