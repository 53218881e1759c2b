# A server of generated pages, some load, a clean end.
set -e
mkdir -p logs
sed "s/PORT/$FIELD_PORT/; s,PLACE,$PWD," nginx.conf.in >nginx.conf
nginx -p "$PWD" -c nginx.conf -e logs/error.log -g 'daemon off;' 2>server.log &
server=$!
tries=0
until ab -q -n 1 "http://127.0.0.1:$FIELD_PORT/" >load.log 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 200 ]
    sleep 0.05
done
ab -q -n 20000 -c 20 -H 'Accept-Encoding: gzip' "http://127.0.0.1:$FIELD_PORT/" >load.log 2>&1
grep -E '^(Complete|Failed) requests' load.log
kill -QUIT $server
wait $server
echo "server ended with $?"
