create table t (a integer primary key, b text, c real); create index ti on t (b, c);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 120) insert into t select i, 'w' || (i * 7919 % 31), i * 1.5 from n;
select b, count(*), sum(c), group_concat(a) from t group by b having count(*) > 3 order by 2 desc, b limit 5;
create view v as select x.a, y.b from t x join t y on x.a = y.a + 1 where x.c > 10; select count(*), max(b) from v;
update t set c = c * 2 where b like 'w1%'; delete from t where a % 10 = 0; begin; insert into t values (1000, 'z', null); rollback;
select json_object('a', a, 'b', b) from t limit 2; select printf('%05d %s %.2f', 42, upper('x'), 3.14159), substr('hello', 2, 3), round(2.567, 1);
select a, row_number() over (partition by b order by c desc) from t order by a limit 4; select * from t where a in (select a + 1 from t where c < 20) and b glob 'w*' order by c desc limit 3;
select date('2020-01-01', '+1 month'), strftime('%Y', '2021-05-05'); explain query plan select * from t where b = 'w3'; pragma integrity_check; vacuum; select nosuch;
